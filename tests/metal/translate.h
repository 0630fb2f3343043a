// MSL to C++: what macros of msl/ cannot say. The text keeps its lines, so that errors name the lines of the kernel.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rota::test::metal {

enum class ConstantType { boolean, int32, uint32, float32 };
const char* name_of(ConstantType type);

struct ConstantValue {
  ConstantType type;
  uint32_t bits;
};
using ConstantValues = std::map<unsigned, ConstantValue>;

struct FunctionConstant {
  std::string name;
  ConstantType type;
  unsigned index;
  bool has_default;  // the kernel asks whether it is set
};

struct Edit {
  size_t at, length;
  std::string replacement;
};

struct Parameter {
  std::string attribute;
  int index = -1;  // of a buffer
  char kind = 0;   // '&', '*', or 0 for a value
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
};

// A text of MSL with what its declarations say. `error` is empty if it can be translated.
struct Source {
  std::string text;
  std::string definitions;
  std::string error;
  std::vector<Kernel> kernels;
  std::vector<FunctionConstant> constants;
  std::vector<Edit> common;                          // edits of every translation
  std::vector<Edit> opaque;                          // function constants without values
  std::vector<std::pair<size_t, unsigned>> values;   // where constants[second] takes its value
  std::vector<std::pair<Edit, unsigned>> questions;  // where a kernel asks whether constants[second] is set
};

// `definitions` are lines of #define that come before the text.
Source read_source(std::string text, std::string definitions);

// For checking: function constants have no values, so that they are no constant expressions.
std::string translate_library(const Source& source);

// For running `kernel`, a name of source.kernels.
std::string translate_function(const Source& source, const Kernel& kernel, const ConstantValues& values);

}  // namespace rota::test::metal
