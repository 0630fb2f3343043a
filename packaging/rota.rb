# Homebrew, from a clone: brew install --HEAD ./packaging/rota.rb
class Rota < Formula
  desc "Language model's KV cache: small, exact and fast to attend to"
  license "Apache-2.0"
  head "file://#{File.expand_path("..", __dir__)}", using: :git, branch: "main"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "shaderc" => :build
  depends_on "spirv-cross" => :build
  depends_on "spirv-tools" => :build
  depends_on "fmt"
  uses_from_macos "zlib"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DROTA_VULKAN=OFF", "-DROTA_METAL=ON", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    system bin/"rota", "doctor", "--selftest", "--device", "cpu"
  end
end
