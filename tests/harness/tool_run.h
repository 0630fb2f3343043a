#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

// The rota command, as a user meets it. ROTA_TOOL_PATH is set by the build.

namespace rota::test {

struct ToolOutput {
  std::string text;
  int exit_code = -1;
};

// What a shell's command prints to stdout and stderr.
inline ToolOutput run_shell(const std::string& command) {
  ToolOutput output;
  FILE* const pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) output.text.append(part.data(), size);
  output.exit_code = WEXITSTATUS(pclose(pipe));
  return output;
}

inline ToolOutput run_tool(const std::string& arguments) {
  return run_shell(std::string(ROTA_TOOL_PATH) + " " + arguments);
}

inline bool contains(const ToolOutput& output, std::string_view text) {
  return output.text.find(text) != std::string::npos;
}

}  // namespace rota::test
