#pragma once

#include <exception>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace rota::tool {

// What every command exits with.
enum class Exit : int {
  ok = 0,
  failed_check = 1,
  usage = 2,
  no_such_device = 3,
  refused_fallback = 4,
  interrupted = 130,  // as shells say of what Ctrl-C ended
};

// Ends a command: what went wrong, where and why, and the next command to try.
class Failure : public std::exception {
 public:
  Failure(Exit exit, std::string what, std::string next = {})
      : exit_(exit), what_(std::move(what)), next_(std::move(next)) {}

  const char* what() const noexcept override { return what_.c_str(); }
  Exit exit() const noexcept { return exit_; }
  const std::string& next() const noexcept { return next_; }

 private:
  Exit exit_;
  std::string what_, next_;
};

// One use of the tool.
struct Invocation {
  std::string command{};  // as a shell would take it again
  Exit exit = Exit::ok;   // commands set it when they run
};

// Each adds one command to the parser.
void add_bench(CLI::App& app, Invocation& invocation);
void add_completions(CLI::App& app, Invocation& invocation);
void add_devices(CLI::App& app, Invocation& invocation);
void add_distort(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_estimate(CLI::App& app, Invocation& invocation);
void add_help(CLI::App& app, Invocation& invocation);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_manual(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_store(CLI::App& app, Invocation& invocation);  // of builds with the page store
void add_version(CLI::App& app, Invocation& invocation);

}  // namespace rota::tool
