#!/usr/bin/env bash
# make_zig_toolchain.sh FOLDER TARGET: makes FOLDER/toolchain.cmake, with which CMake compiles by PyPI's zig for TARGET,
# as zig's -target takes it. Needs what scripts/get_python_tools.sh brings.
set -euo pipefail
mkdir -p "$1"
folder=$(cd -P "$1" && pwd) target=$2
cd -P "$(dirname "$0")/.."
zig=$(echo "$PWD"/build/python/lib/python*/site-packages/ziglang/zig)
[ -x "$zig" ] || { echo "there is no zig in build/python; scripts/get_python_tools.sh brings it" >&2; exit 1; }

mkdir -p "$folder"/{bin,cache,include,lib/cmake/fmt,share/cmake}
. scripts/wrap_zig.sh
wrap_zig "$zig" "$folder/cache" "$folder/bin/clang++" "c++ -target $target $zig_options"
for tool in ar ranlib; do wrap_zig "$zig" "$folder/cache" "$folder/bin/$tool" $tool; done

# Headers of libraries alone: beside them in /usr/include lie those of this system's C library.
for headers in fmt CLI nlohmann vulkan vk_video; do
  ln -sfn "/usr/include/$headers" "$folder/include/$headers"
done
for header in zlib.h zconf.h sqlite3.h sodium.h sodium; do
  ln -sfn "/usr/include/$header" "$folder/include/$header"
done
# A part of OpenSSL's depends on the architecture.
mkdir -p "$folder/include/openssl"
ln -sfn /usr/include/openssl/*.h "/usr/include/$(g++ -print-multiarch)"/openssl/*.h "$folder/include/openssl"
for package in CLI11 nlohmann_json; do
  rm -rf "$folder/share/cmake/$package"
  cp -r "/usr/share/cmake/$package" "$folder/share/cmake"
done
cat >"$folder/lib/cmake/fmt/fmt-config.cmake" <<CMAKE
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt SYSTEM INTERFACE $folder/include)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(fmt::fmt-header-only ALIAS fmt::fmt)
CMAKE
# Compiled in: programs of this toolchain run where none of these may be.
archive() {
  g++ -print-file-name="lib$1.a"
}
cat >"$folder/toolchain.cmake" <<CMAKE
set(ZLIB_INCLUDE_DIR $folder/include CACHE PATH "")
set(ZLIB_LIBRARY $(archive z) CACHE FILEPATH "")
set(SQLite3_INCLUDE_DIR $folder/include CACHE PATH "")
set(SQLite3_LIBRARY $(archive sqlite3) CACHE FILEPATH "")
set(ROTA_SODIUM_INCLUDE $folder/include CACHE PATH "")
set(ROTA_SODIUM_LIBRARY $(archive sodium) CACHE FILEPATH "")
set(OPENSSL_INCLUDE_DIR $folder/include CACHE PATH "")
set(OPENSSL_SSL_LIBRARY $(archive ssl) CACHE FILEPATH "")
set(OPENSSL_CRYPTO_LIBRARY $(archive crypto) CACHE FILEPATH "")
set(CMAKE_CXX_COMPILER $folder/bin/clang++)
set(CMAKE_AR $folder/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $folder/bin/ranlib CACHE FILEPATH "")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXE_LINKER_FLAGS_INIT -pie)
list(PREPEND CMAKE_PREFIX_PATH $folder $PWD/build/hiredis)
CMAKE
