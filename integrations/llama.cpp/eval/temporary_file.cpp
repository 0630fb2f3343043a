#include "temporary_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "failure.h"

namespace rota::eval {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<const char*> path_to_remove{nullptr};

// The signal then does what it does without us.
void remove_and_end(int signal) {
  if (const char* const path = path_to_remove.load()) unlink(path);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  path_ = ((error ? "/tmp" : folder) / (name + "-XXXXXX")).string();
  const int file = mkstemp(path_.data());
  if (file < 0) {
    throw Failure(Exit::failed, "no temporary file '" + path_ + "': " + std::generic_category().message(errno));
  }
  close(file);
  path_to_remove = path_.c_str();
  for (const int signal : kSignals) {
    if (std::signal(signal, remove_and_end) == SIG_IGN) std::signal(signal, SIG_IGN);  // as below nohup
  }
}

TemporaryFile::~TemporaryFile() {
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
  path_to_remove = nullptr;
  unlink(path_.c_str());
}

}  // namespace rota::eval
