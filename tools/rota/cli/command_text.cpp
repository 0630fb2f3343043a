#include "cli/command_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cli/lines.h"

namespace rota::tool {
namespace {

constexpr std::size_t kColumn = 34;  // where descriptions begin

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

OptionText describe(const CLI::Option& option, const std::vector<std::string>& commands) {
  OptionText text{.names = {}, .value = {}, .choices = {}, .description = option.get_description()};
  text.required = option.get_required();
  text.given = option.count() > 0;
  text.repeated = option.get_items_expected_max() > 1;
  if (option.get_positional()) {
    text.names = {option.get_name(true, false)};
  } else {
    for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
    for (const ShortName& known : kShortNames) {
      if (option.check_lname(std::string(known.stands_for.substr(2)))) text.names.emplace_back(known.name);
    }
    for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() > 0) {
    text.value = option.get_type_name();
    if (text.value.find('|') != std::string::npos) text.choices = split(text.value, '|');
    if (text.value == "COMMAND") text.choices = commands;
  }
  return text;
}

// A description stands beside what it describes, or below it where lines are short.
std::string line(const std::string& left, std::string_view description, std::size_t width) {
  constexpr std::size_t kLeastBeside = 80, kBelow = 6;
  const bool beside = width >= kLeastBeside;
  const std::size_t column = beside ? kColumn : kBelow;
  const std::string head = wrapped(left, {width, 2, kBelow});
  if (description.empty()) return fmt::format("  {}\n", head);
  const std::string text = wrapped(description, {width, column, column});
  if (!beside || left.size() + 4 > kColumn) return fmt::format("  {}\n{:{}}{}\n", head, "", column, text);
  return fmt::format("  {:<{}}{}\n", left, kColumn - 2, text);
}

std::string left_side(const OptionText& option) {
  std::string text = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.value.empty() && option.names.front().front() == '-') text += " " + option.value;
  return text;
}

// Not only those that were called.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

}  // namespace

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

CommandText describe(const CLI::App& app) {
  CommandText text{.name = app.get_name(), .description = app.get_description(), .footer = app.get_footer()};
  const CLI::App* root = &app;
  while (root->get_parent() != nullptr) {
    root = root->get_parent();
    text.name = root->get_name() + " " + text.name;
  }
  std::vector<std::string> all;
  for (const CLI::App* command : commands_of(*root)) all.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? text.positionals : text.options).push_back(describe(*option, all));
  }
  for (const CLI::App* command : commands_of(app)) text.commands.push_back(describe(*command));
  return text;
}

std::string usage_text(const CommandText& command) {
  std::string usage = command.name;
  if (!command.commands.empty()) usage += " COMMAND";
  for (const OptionText& positional : command.positionals) {
    const std::string& name = positional.names.front();
    usage += positional.required ? " " + name : " [" + name + "]";
  }
  return usage + " [OPTIONS]";
}

std::string help_text(const CommandText& command, std::size_t width) {
  constexpr std::string_view kUsage = "Usage: ";
  std::string text = fmt::format("{}\n\n{}{}\n", wrapped(command.description, {width}), kUsage,
                                 wrapped(usage_text(command), {width, kUsage.size(), kUsage.size()}));
  const auto add = [&](const OptionText& option) { text += line(left_side(option), option.description, width); };
  if (!command.commands.empty()) text += "\nCommands:\n";
  for (const CommandText& part : command.commands) text += line(last_word(part.name), part.description, width);
  if (!command.positionals.empty()) text += "\nArguments:\n";
  std::ranges::for_each(command.positionals, add);
  text += "\nOptions:\n";
  std::ranges::for_each(command.options, add);
  if (!command.footer.empty()) text += "\n" + wrapped_footer(command.footer, width) + "\n";
  return text;
}

}  // namespace rota::tool
