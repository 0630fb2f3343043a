#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cli/command_text.h"
#include "cli/lines.h"
#include "cli/names.h"
#include "cli/show.h"
#include "cli/written.h"
#include "cli/wrong_usage.h"
#include "rota/result.h"

namespace rota::tool {
namespace {

constexpr const char* kFooter =
    "Exit codes:\n"
    "    0  fine\n"
    "    1  a check failed, or a file is not what it should be\n"
    "    2  wrong usage\n"
    "    3  there is no such device\n"
    "    4  the device or format cannot serve this, and rota takes no other in its place\n"
    "  130  interrupted; what bench had measured by then is printed\n\n"
    "A command's own help: rota COMMAND --help";

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return help_text(describe(*app), line_width());
  }
};

// "-ctk f16" and "-ctk=f16" as the parser knows them.
std::string with_long_name(const std::string& argument) {
  for (const ShortName& known : kShortNames) {
    if (!argument.starts_with(known.name)) continue;
    const std::string rest = argument.substr(known.name.size());
    if (rest.empty() || rest.front() == '=') return std::string(known.stands_for) + rest;
  }
  return argument;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

// The command that was meant, as far as it was understood.
CommandText parsed_command(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? describe(app) : parsed_command(*parsed.front());
}

// Nothing that is said of a command line has a password in it.
std::string without_passwords(std::string text, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string shown = without_password(argument);
    if (shown == argument) continue;
    for (std::size_t at = 0; (at = text.find(argument, at)) != std::string::npos; at += shown.size()) {
      text.replace(at, argument.size(), shown);
    }
  }
  return text;
}

Exit say(const CLI::App& app, const Failure& failure, const std::vector<std::string>& arguments) {
  const std::string command = parsed_command(app).name;
  const std::string what = one_line(without_passwords(failure.what(), arguments));
  const std::string next = failure.next().empty() ? command + " --help" : one_line(failure.next());
  write_error(fmt::format("{}: {}\ntry: {}\n", command, what, next));
  return failure.exit();
}

Failure failure_of(const Error& error, const CommandText& command) {
  switch (error.code) {
    case Errc::no_device: return {Exit::no_such_device, error.message, "rota devices"};
    case Errc::unsupported:
      return {Exit::refused_fallback, error.message + "; no other device or format is taken in its place",
              "rota doctor --kernels"};
    case Errc::out_of_memory: return {Exit::failed_check, error.message, "rota estimate --help"};
    case Errc::device_lost:
    case Errc::pipeline_failed: return {Exit::failed_check, error.message, "rota doctor --selftest"};
    case Errc::invalid_argument: {
      const InOptions said = in_options(error.message, command);
      return {Exit::usage, said.message, said.by_option ? command.name + " --help" : "rota doctor --kernels"};
    }
    default: return {Exit::failed_check, error.message};
  }
}

}  // namespace

std::unique_ptr<CLI::App> make_parser(Invocation& invocation) {
  auto app = std::make_unique<CLI::App>("A language model's KV cache: measure it, plan it, trust it", "rota");
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "Say what a command does and takes");
  app->set_version_flag("-V,--version", version_text(), "Say which version this is");
  app->footer(kFooter);
  app->require_subcommand(1);
  add_devices(*app, invocation);
  add_doctor(*app, invocation);
  add_bench(*app, invocation);
  add_estimate(*app, invocation);
  add_inspect(*app, invocation);
  add_distort(*app, invocation);
  add_report(*app, invocation);
#if ROTA_TOOL_HAS_STORE
  add_store(*app, invocation);
#endif
  add_completions(*app, invocation);
  add_manual(*app, invocation);
  add_help(*app, invocation);
  add_version(*app, invocation);
  return app;
}

Exit run(std::vector<std::string> arguments) {
  Invocation invocation{.command = "rota"};
  for (const std::string& argument : arguments) invocation.command += " " + shell_word(without_password(argument));
  const std::string first = arguments.empty() ? std::string() : arguments.front();
  const std::vector<std::string> given = arguments;
  std::ranges::transform(arguments, arguments.begin(), with_long_name);
  std::ranges::reverse(arguments);  // as CLI11 takes a vector
  const auto app = make_parser(invocation);
  try {
    // CLI11 would only say that a command is missing.
    if (!first.empty() && !first.starts_with('-')) command_named(describe(*app), first);
    app->parse(std::move(arguments));
    flush_out();
    return invocation.exit;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream words;
      app->exit(error, words, words);
      write_out(words.str());
      flush_out();
      return Exit::ok;
    }
    const Misuse misuse{error.get_name(), error.what(), app->remaining(true)};
    return say(*app, failure_of(misuse, parsed_command(*app)), given);
  } catch (const Failure& failure) {
    return say(*app, failure, given);
  } catch (const BadResult& bad) {
    return say(*app, failure_of(bad.error(), parsed_command(*app)), given);
  }
}

}  // namespace rota::tool
