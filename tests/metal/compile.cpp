#include "compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "hooks.h"

extern char** environ;

namespace rota::test::metal {

namespace {

namespace fs = std::filesystem;

std::atomic<uint64_t> g_runs{0};

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

std::string compiler() { return environment("ROTA_MSL_CLANG", "clang++-19"); }

// The library that kernels include.
std::string library_folder() { return ROTA_MSL_SHIM; }

const fs::path& cache_folder() {
  static const fs::path folder = [] {
    const fs::path path = environment("ROTA_MSL_CACHE", fs::temp_directory_path() / "rota-msl-cache");
    fs::create_directories(path);
    return path;
  }();
  return folder;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Two FNV-1a hashes of 64 bits with different starts: short, and the same in every program.
std::string hash_of(const std::string& text) {
  uint64_t low = 14695981039346656037u;
  uint64_t high = 0x9ae16a3b2f90404fu;
  for (const char c : text) {
    low = (low ^ static_cast<unsigned char>(c)) * 1099511628211u;
    high = (high ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    high ^= high >> 29;
  }
  char name[40];
  std::snprintf(name, sizeof(name), "%016lx%016lx", low, high);
  return name;
}

// The version of the library that kernels include.
const std::string& library_hash() {
  static const std::string hash = [] {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(library_folder())) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    std::string all;
    for (const fs::path& file : files) all += file.filename().string() + contents(file);
    return hash_of(all);
  }();
  return hash;
}

struct Outcome {
  bool succeeded = false;
  std::string output;
};

Outcome run(const std::vector<std::string>& arguments, const fs::path& log) {
  ++g_runs;
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {false, "cannot start " + arguments[0]};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome{WIFEXITED(status) && WEXITSTATUS(status) == 0, contents(log)};
  std::error_code ignored;
  fs::remove(log, ignored);
  return outcome;
}

std::vector<std::string> command(Math math) {
  std::vector<std::string> words = {
      compiler(), "-x", "c++", "-std=c++17", "-nostdinc", "-nostdinc++", "-I", library_folder(), "-O1", "-fPIC",
      "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-strict-aliasing",
      "-fwrapv", "-fno-math-errno", "-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none",
      "-fconvergent-functions",
      // Hooks know where they are called by where they return to.
      "-fno-optimize-sibling-calls", "-Wno-everything", "-Werror=vla", "-Werror=vla-extension",
      // In MSL a number such as 1.5 is a float.
      "-Xclang", "-cl-single-precision-constant"};
  // For conversions of half and for fma, which are slow otherwise.
  if (__builtin_cpu_supports("x86-64-v3")) words.emplace_back("-march=x86-64-v3");
  if (math == Math::fast) words.emplace_back("-ffast-math");
  return words;
}

std::vector<std::string> code_options() {
  // Each access calls __tsan_read4 and the like: see hooks.h.
  return {"-fsanitize=thread",
          "-mllvm",
          "-tsan-instrument-func-entry-exit=0",
          "-mllvm",
          "-tsan-instrument-read-before-write=1",
          "-shared",
          "-nostdlib",
          "-fuse-ld=lld",
          "-Wl,-Bsymbolic",
          "-Wl,-z,nostart-stop-gc"};
}

std::string key_of(const std::string& text, const std::vector<std::string>& words) {
  std::string all = library_hash() + "\n" + text;
  for (const std::string& word : words) all += "\n" + word;
  return hash_of(all);
}

// A name beside `path` that no other program or thread uses.
fs::path private_name(const fs::path& path) {
  static std::atomic<unsigned> serial{0};
  return path.string() + "." + std::to_string(getpid()) + "." + std::to_string(++serial);
}

// Where the library that holds the address is loaded.
struct Extent {
  uintptr_t inside;
  uintptr_t first;
  uintptr_t last;
};

int find_extent(dl_phdr_info* info, size_t, void* data) {
  auto& extent = *static_cast<Extent*>(data);
  uintptr_t first = UINTPTR_MAX;
  uintptr_t last = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    first = std::min(first, begin);
    last = std::max(last, begin + header.p_memsz);
  }
  if (extent.inside < first || extent.inside >= last) return 0;
  extent.first = first;
  extent.last = last;
  return 1;
}

}  // namespace

Checked check_text(const std::string& text, Math math) {
  std::vector<std::string> words = command(math);
  words.emplace_back("-fsyntax-only");
  const fs::path done = cache_folder() / (key_of(text, words) + ".checked");
  if (fs::exists(done)) return {};
  const fs::path source = private_name(done);
  std::ofstream(source, std::ios::binary) << text;
  words.push_back(source);
  const Outcome outcome = run(words, source.string() + ".log");
  if (outcome.succeeded) {
    fs::rename(source, done);
    return {};
  }
  fs::remove(source);
  return {outcome.output};
}

Compiled compile_text(const std::string& text, Math math) {
  std::vector<std::string> words = command(math);
  const std::vector<std::string> more = code_options();
  words.insert(words.end(), more.begin(), more.end());
  const fs::path library = cache_folder() / (key_of(text, words) + ".so");
  if (!fs::exists(library)) {
    const fs::path fresh = private_name(library);
    const fs::path source = fresh.string() + ".cpp";
    std::ofstream(source, std::ios::binary) << text;
    words.insert(words.end(), {source, "-o", fresh});
    const Outcome outcome = run(words, fresh.string() + ".log");
    fs::remove(source);
    if (!outcome.succeeded) return {nullptr, outcome.output};
    fs::rename(fresh, library);
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, dlerror()};
  return {std::unique_ptr<Binary>(new Binary(handle)), ""};
}

Binary::Binary(void* handle) : handle_(handle) {
  program_ = static_cast<const rota_msl::Program*>(dlsym(handle, "rota_msl_program"));
  fill_hooks(static_cast<void**>(dlsym(handle, "rota_msl_hooks")));
  Extent extent{reinterpret_cast<uintptr_t>(program_), 0, 0};
  dl_iterate_phdr(find_extent, &extent);
  first_ = extent.first;
  last_ = extent.last;
}

Binary::~Binary() { dlclose(handle_); }

size_t Binary::threadgroup_bytes() const {
  size_t bytes = 0;
  for (const rota_msl::Variable* each = program_->variables_first; each != program_->variables_last; ++each) {
    bytes = (bytes + each->alignment - 1) / each->alignment * each->alignment + each->bytes;
  }
  return bytes;
}

uint64_t compiler_runs() { return g_runs; }

}  // namespace rota::test::metal
