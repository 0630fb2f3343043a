#include "translate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "recursion.h"
#include "tokens.h"

namespace rota::test::metal {

namespace {

constexpr unsigned kBuffers = 31;

constexpr std::array kPlaces = {
    "thread_position_in_grid",     "thread_position_in_threadgroup", "threadgroup_position_in_grid",
    "threadgroups_per_grid",       "threads_per_threadgroup",        "threads_per_grid",
    "thread_index_in_threadgroup", "thread_index_in_simdgroup",      "simdgroup_index_in_threadgroup",
    "threads_per_simdgroup",       "thread_execution_width",         "simdgroups_per_threadgroup"};

class Reader {
 public:
  explicit Reader(Source& source) : source_(source), tokens_(tokens_of(source.text)) {}

  void read() {
    for (size_t i = 0; i < tokens_.size() && source_.error.empty(); ++i) {
      const std::string_view word = tokens_[i].text;
      if (word == "double") fail(i, "'double' is not supported in Metal");
      if (word == "kernel") read_kernel(i);
      if (word == "threadgroup") read_threadgroup(i);
      if (word == "function_constant") read_constant(i);
    }
    for (size_t i = 0; i < tokens_.size() && source_.error.empty(); ++i) {
      if (tokens_[i].text == "is_function_constant_defined") read_question(i);
    }
    if (!source_.error.empty()) return;
    if (const auto call = find_recursion(tokens_)) fail(*call, "recursion is not supported in Metal");
  }

 private:
  std::string_view word(size_t i) const { return i < tokens_.size() ? tokens_[i].text : std::string_view(); }

  void fail(size_t token, const std::string& message) {
    const size_t at = token < tokens_.size() ? tokens_[token].at : source_.text.size();
    const auto line =
        1 + std::count(source_.text.begin(), source_.text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    source_.error = "program_source:" + std::to_string(line) + ": error: " + message;
  }

  // kernel void name ( parameters )
  void read_kernel(size_t i) {
    if (word(i + 1) != "void" || word(i + 3) != "(") return fail(i, "expected 'kernel void name('");
    Kernel kernel;
    kernel.name = word(i + 2);
    size_t from = i + 4;
    int depth = 1;
    for (size_t j = from; j < tokens_.size() && depth > 0; ++j) {
      const std::string_view token = word(j);
      if (token == "(") ++depth;
      if (token == ")") --depth;
      if ((depth == 1 && token == ",") || depth == 0) {
        if (j > from && !read_parameter(from, j, kernel)) return;
        from = j + 1;
      }
    }
    source_.kernels.push_back(std::move(kernel));
  }

  // type name [[attribute]], tokens [from, to)
  bool read_parameter(size_t from, size_t to, Kernel& kernel) {
    Parameter parameter;
    size_t i = from;
    for (; i < to && word(i) != "["; ++i) {
      if (word(i) == "&" || word(i) == "*") parameter.kind = word(i)[0];
    }
    if (i + 3 > to) return fail(from, "a parameter of a kernel has no attribute"), false;
    parameter.attribute = word(i + 2);
    if (parameter.attribute == "buffer") {
      parameter.index = std::atoi(std::string(word(i + 4)).c_str());
      if (parameter.index < 0 || parameter.index >= static_cast<int>(kBuffers)) {
        return fail(i, "'buffer' attribute parameter is out of bounds: must be between 0 and 30"), false;
      }
    } else if (std::ranges::find(kPlaces, parameter.attribute) == kPlaces.end()) {
      return fail(i, "software Metal has no parameter [[" + parameter.attribute + "]]"), false;
    }
    kernel.parameters.push_back(std::move(parameter));
    return true;
  }

  // A declaration without initialiser whose type is no pointer or reference; elsewhere the word only qualifies.
  void read_threadgroup(size_t i) {
    const std::string_view before = i > 0 ? word(i - 1) : "";
    if (source_.kernels.empty() || (before != "{" && before != "}" && before != ";")) return;
    const std::string& kernel = source_.kernels.back().name;
    std::string declared;
    int depth = 0;
    size_t j = i + 1;
    for (; word(j) != ";"; ++j) {
      const std::string_view token = word(j);
      const std::string_view next = word(j + 1);
      if (j >= tokens_.size() || token == "*" || token == "&" || token == "(" || token == "=") return;
      if (token == "<" || token == "[") ++depth;
      if (token == ">" || token == "]") --depth;
      const bool is_name = depth == 0 && token != "]" && token != ">" && token != ",";
      if (is_name && (next == "[" || next == "," || next == ";")) {
        declared += " ROTA_MSL_DECLARED(" + kernel + ", " + std::string(token) + ")";
      }
    }
    const std::string_view word_itself = tokens_[i].text;
    source_.common.push_back({tokens_[i].at, word_itself.size(), "ROTA_MSL_THREADGROUP(" + kernel + ")"});
    source_.common.push_back({tokens_[j].at + 1, 0, declared});
  }

  // constant type name [[function_constant(index)]];
  void read_constant(size_t i) {
    if (i < 5 || word(i - 5) != "constant" || word(i + 1) != "(")
      return fail(i, "expected 'constant type name' before");
    FunctionConstant constant;
    constant.name = word(i - 3);
    constant.index = static_cast<unsigned>(std::atoi(std::string(word(i + 2)).c_str()));
    constant.has_default = false;
    const std::string_view type = word(i - 4);
    bool known = false;
    for (ConstantType each :
         {ConstantType::boolean, ConstantType::int32, ConstantType::uint32, ConstantType::float32}) {
      if (type != name_of(each)) continue;
      constant.type = each;
      known = true;
    }
    if (!known) return fail(i, "software Metal has no function constant of type " + std::string(type));
    const size_t first = tokens_[i - 2].at;
    const size_t last = tokens_[i + 5].at;
    source_.common.push_back({first, last + 1 - first, ""});
    source_.opaque.push_back({tokens_[i - 5].at, 0, "extern "});
    source_.values.emplace_back(last + 1, static_cast<unsigned>(source_.constants.size()));
    source_.constants.push_back(std::move(constant));
  }

  void read_question(size_t i) {
    for (unsigned c = 0; c < source_.constants.size(); ++c) {
      if (source_.constants[c].name != word(i + 2)) continue;
      source_.constants[c].has_default = true;
      const size_t at = tokens_[i].at;
      source_.questions.emplace_back(Edit{at, tokens_[i + 3].at + 1 - at, ""}, c);
      return;
    }
    fail(i, "'" + std::string(word(i + 2)) + "' is no function constant");
  }

  Source& source_;
  std::vector<Token> tokens_;
};

std::string edited(const Source& source, std::vector<Edit> edits) {
  const std::string& text = source.text;
  // One that inserts comes after one that ends at the same place.
  std::ranges::sort(edits, [](const Edit& a, const Edit& b) {
    return std::pair(a.at, a.at + a.length) < std::pair(b.at, b.at + b.length);
  });
  std::string result = source.definitions + "#line 1 \"program_source\"\n";
  size_t from = 0;
  for (const Edit& edit : edits) {
    result.append(text, from, edit.at - from);
    result += edit.replacement;
    from = edit.at + edit.length;
  }
  result.append(text, from, text.size() - from);
  return result;
}

std::string literal(const ConstantValue& value) {
  switch (value.type) {
    case ConstantType::boolean: return (value.bits & 0xff) != 0 ? "true" : "false";
    case ConstantType::int32: return "int(" + std::to_string(value.bits) + "u)";
    case ConstantType::uint32: return std::to_string(value.bits) + "u";
    case ConstantType::float32: return "__builtin_bit_cast(float, " + std::to_string(value.bits) + "u)";
  }
  return "";
}

// Declares where a section begins and ends: nowhere, if the kernel puts nothing into it.
std::string bounds_of(const std::string& type, const std::string& section) {
  return "extern \"C\" __attribute__((weak, visibility(\"hidden\"))) " + type + " __start_" + section + "[], __stop_" +
         section + "[];\n";
}

std::string arguments_of(const Kernel& kernel) {
  std::string arguments;
  for (const Parameter& parameter : kernel.parameters) {
    if (!arguments.empty()) arguments += ", ";
    if (parameter.index >= 0) {
      arguments += parameter.kind == '&' ? "rota_msl::Reference" : "rota_msl::Pointer";
      arguments += "{rota_msl_thread->buffers[" + std::to_string(parameter.index) + "]}";
    } else {
      arguments += "rota_msl::Place{rota_msl_thread->" + parameter.attribute + "}";
    }
  }
  return arguments;
}

std::string entry_of(const Kernel& kernel) {
  const std::string memory = "rota_threadgroup_" + kernel.name;
  const std::string variables = "rota_variables_" + kernel.name;
  return "\n#line 1 \"entry\"\n#include <rota/entry.h>\n" + bounds_of("char", memory) +
         bounds_of("rota_msl::Variable", variables) +
         "static __attribute__((no_sanitize(\"thread\"))) void rota_msl_entry(const rota_msl::Thread* rota_msl_thread) "
         "{\n" +
         kernel.name + "(" + arguments_of(kernel) +
         ");\n}\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) rota_msl::Program rota_msl_program;\n"
         "rota_msl::Program rota_msl_program = {rota_msl_entry, __start_" +
         memory + ", __stop_" + memory + ", __start_" + variables + ", __stop_" + variables + "};\n";
}

}  // namespace

const char* name_of(ConstantType type) {
  switch (type) {
    case ConstantType::boolean: return "bool";
    case ConstantType::int32: return "int";
    case ConstantType::uint32: return "uint";
    case ConstantType::float32: return "float";
  }
  return "";
}

Source read_source(std::string text, std::string definitions) {
  Source source;
  source.definitions = std::move(definitions);
  source.text = std::move(text);
  Reader(source).read();
  return source;
}

std::string translate_library(const Source& source) {
  std::vector<Edit> edits = source.common;
  edits.insert(edits.end(), source.opaque.begin(), source.opaque.end());
  return edited(source, std::move(edits));
}

std::string translate_function(const Source& source, const Kernel& kernel, const ConstantValues& values) {
  std::vector<Edit> edits = source.common;
  for (const auto& [at, constant] : source.values) {
    const auto value = values.find(source.constants[constant].index);
    edits.push_back({at, 0, " = " + (value == values.end() ? "{}" : literal(value->second))});
  }
  for (const auto& [edit, constant] : source.questions) {
    edits.push_back({edit.at, edit.length, values.count(source.constants[constant].index) > 0 ? "true" : "false"});
  }
  return edited(source, std::move(edits)) + entry_of(kernel);
}

}  // namespace rota::test::metal
