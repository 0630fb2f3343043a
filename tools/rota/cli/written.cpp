#include "cli/written.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "cli/characters.h"
#include "cli/command.h"

namespace rota::tool {
namespace {

std::string why(int error) {
  return error == 0 ? std::string("cannot be written") : std::generic_category().message(error);
}

[[noreturn]] void fail_out(int error) {
  throw Failure(Exit::failed_check, fmt::format("standard output: {}; what was printed is not whole", why(error)),
                "the same into another file, or to a disk with room");
}

[[noreturn]] void fail_file(const std::string& path, int error) {
  throw Failure(Exit::failed_check, fmt::format("{}: {}; wanted a file to write", path, why(error)));
}

}  // namespace

std::string shown(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    made += may_be_shown(code) ? text.substr(0, bytes) : "?";
    text.remove_prefix(bytes);
  }
  return made;
}

void write_out(std::string_view text) {
  const std::string safe = shown(text);
  errno = 0;
  if (std::fwrite(safe.data(), 1, safe.size(), stdout) != safe.size()) fail_out(errno);
}

void flush_out() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_out(errno);
}

void write_error(std::string_view text) {
  const std::string safe = shown(text);
  std::fwrite(safe.data(), 1, safe.size(), stderr);
}

void write_file(const std::string& path, std::string_view bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) fail_file(path, errno);
}

void check_writable(const std::string& path) {
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) fail_file(path, errno);
}

}  // namespace rota::tool
