#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "harness/tool_run.h"

// The rota command, as someone meets it who sits before a terminal: stderr is one, stdout is a file.

namespace rota::test {

class TerminalRun {
 public:
  explicit TerminalRun(std::vector<std::string> arguments) : terminal_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (terminal_ < 0 || grantpt(terminal_) != 0 || unlockpt(terminal_) != 0) std::abort();
    const int shown_on = open(ptsname(terminal_), O_RDWR | O_NOCTTY);
    arguments.insert(arguments.begin(), ROTA_TOOL_PATH);
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      dup2(fileno(out_), STDOUT_FILENO);
      dup2(shown_on, STDERR_FILENO);
      std::signal(SIGINT, SIG_DFL);  // a background's test would ignore it
      execv(words.front(), words.data());
      _exit(127);
    }
    close(shown_on);
  }
  ~TerminalRun() {
    if (process_ > 0) kill(process_, SIGKILL);
    end();
    close(terminal_);
    std::fclose(out_);
  }
  TerminalRun(const TerminalRun&) = delete;
  TerminalRun& operator=(const TerminalRun&) = delete;

  // Whether the terminal showed the text before the run, or the patience of a test, ended.
  bool shows(std::string_view text) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (shown_.find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > patience || !read_more()) return shown_.find(text) != std::string::npos;
    }
    return true;
  }
  const std::string& shown() const { return shown_; }

  void interrupt() const { kill(process_, SIGINT); }

  // What it wrote to stdout. Whom a signal ended has an exit code as shells say it.
  ToolOutput end() {
    if (process_ <= 0) return output_;
    while (read_more()) {
    }
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    output_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::rewind(out_);
    std::array<char, 4096> part{};
    while (const std::size_t size = std::fread(part.data(), 1, part.size(), out_)) {
      output_.text.append(part.data(), size);
    }
    return output_;
  }

 private:
  // False when nobody holds the terminal any more.
  bool read_more() {
    pollfd waited{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, 1000) == 0) return true;
    std::array<char, 4096> part{};
    const ssize_t size = ::read(terminal_, part.data(), part.size());
    if (size <= 0) return false;
    shown_.append(part.data(), static_cast<std::size_t>(size));
    return true;
  }

  int terminal_;
  FILE* out_ = std::tmpfile();
  pid_t process_ = 0;
  std::string shown_{};
  ToolOutput output_{};
};

}  // namespace rota::test
