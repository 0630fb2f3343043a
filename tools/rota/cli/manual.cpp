#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "build_info.h"
#include "cli/command.h"
#include "cli/command_text.h"
#include "cli/options.h"
#include "cli/written.h"
#include "rota/version.h"

// Man pages, made from the parser.

namespace rota::tool {
namespace {

// Text as roff takes it for itself, whatever it begins with.
std::string roff(std::string_view text) {
  std::string made;
  for (const char letter : text) {
    if (letter == '\\') {
      made += "\\e";
    } else if (letter == '-') {
      made += "\\-";
    } else {
      if ((made.empty() || made.back() == '\n') && (letter == '.' || letter == '\'')) made += "\\&";
      made += letter;
    }
  }
  return made;
}

// "rota bench" has the page rota-bench(1).
std::string page_name(const CommandText& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string item(const OptionText& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (!option.value.empty() && option.names.front().front() == '-') names += " \\fI" + roff(option.value) + "\\fR";
  return fmt::format(".TP\n{}\n{}\n", names, roff(option.description));
}

void print_page(const CLI::App& app, const std::string& name) {
  const CommandText whole = describe(app);
  if (name.empty()) {
    write_out(man_page(whole));
    return;
  }
  write_out(man_page(command_named(whole, name)));
}

void write_page(const CommandText& command, const std::filesystem::path& folder) {
  write_file((folder / (page_name(command) + ".1")).string(), man_page(command));
}

void write_pages(const CLI::App& app, const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw Failure(Exit::failed_check, fmt::format("cannot make the folder {}: {}", folder.string(), failed.message()));
  }
  const CommandText whole = describe(app);
  write_page(whole, folder);
  for (const CommandText& part : whole.commands) write_page(part, folder);
}

}  // namespace

std::string man_page(const CommandText& command) {
  const std::string name = page_name(command);
  std::string text = fmt::format(".TH {} 1 {} \"rota {}\" \"User Commands\"\n", roff(name), ROTA_DATE, ROTA_VERSION);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.description));
  text += fmt::format(".SH SYNOPSIS\n.B {}\n", roff(usage_text(command)));
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const CommandText& part : command.commands) {
    text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(part)), roff(part.description));
  }
  if (!command.positionals.empty()) text += ".SH ARGUMENTS\n";
  for (const OptionText& positional : command.positionals) text += item(positional);
  text += ".SH OPTIONS\n";
  for (const OptionText& option : command.options) text += item(option);
  if (!command.footer.empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.footer));
  if (command.commands.empty()) text += ".SH SEE ALSO\n.BR rota (1)\n";
  return text;
}

void add_manual(CLI::App& app, Invocation&) {
  const auto name = std::make_shared<std::string>();
  const auto folder = std::make_shared<std::string>();
  const auto run = [&app, name, folder] {
    if (folder->empty()) {
      print_page(app, *name);
    } else {
      write_pages(app, *folder);
    }
  };
  CLI::App& command = add_command(
      app, {.name = "manual",
            .description = "Print a command's man page, or write all of them",
            .footer = "Examples:\n  rota manual bench | man -l -\n  rota manual --all ~/.local/share/man/man1",
            .run = run});
  CLI::Option& one = add_text(command, "COMMAND", *name, {"Whose page; else that of rota itself", "COMMAND"});
  exclude(add_text(command, "--all", *folder, {"Write every page into this folder", "FOLDER"}), one);
}

}  // namespace rota::tool
