// Build tool: translates one kernel from SPIR-V to Metal's shading language, as a file to read and as a row of
// backend/metal/msl.h's table. Binding i becomes buffer i and push constants become buffer 30, whatever the order of
// use.

#include <spirv_cross/spirv_cross_c.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/metal/msl.h"
#include "runtime/command.h"

namespace {

using rota::mtl::MslConstant;
using rota::mtl::MslConstantKind;
using rota::mtl::MslConstantType;

struct Translation {
  std::string text;
  std::vector<MslConstant> constants;
  unsigned group_size = 0;
};

struct ContextDeleter {
  void operator()(spvc_context context) const { spvc_context_destroy(context); }
};

class Translator {
 public:
  Translator() {
    spvc_context context = nullptr;
    if (spvc_context_create(&context) == SPVC_SUCCESS) context_.reset(context);
  }

  // Without text on failure; error() tells why.
  Translation translate(const std::vector<SpvId>& words, const char* entry_point) {
    spvc_parsed_ir ir = nullptr;
    spvc_compiler compiler = nullptr;
    spvc_compiler_options options = nullptr;
    const char* text = nullptr;
    const bool done =
        context_ && ok(spvc_context_parse_spirv(context_.get(), words.data(), words.size(), &ir)) &&
        ok(spvc_context_create_compiler(context_.get(), SPVC_BACKEND_MSL, ir, SPVC_CAPTURE_MODE_TAKE_OWNERSHIP,
                                        &compiler)) &&
        ok(spvc_compiler_create_compiler_options(compiler, &options)) &&
        ok(spvc_compiler_options_set_uint(options, SPVC_COMPILER_OPTION_MSL_VERSION, SPVC_MAKE_MSL_VERSION(2, 3, 0))) &&
        ok(spvc_compiler_options_set_uint(options, SPVC_COMPILER_OPTION_MSL_PLATFORM, SPVC_MSL_PLATFORM_MACOS)) &&
        ok(spvc_compiler_options_set_bool(options, SPVC_COMPILER_OPTION_MSL_FORCE_NATIVE_ARRAYS, SPVC_TRUE)) &&
        ok(spvc_compiler_install_compiler_options(compiler, options)) && bind_all(compiler) &&
        ok(spvc_compiler_rename_entry_point(compiler, "main", entry_point, SpvExecutionModelGLCompute)) &&
        ok(spvc_compiler_compile(compiler, &text));
    if (!done) return {};
    Translation made{.text = without_fast(text)};
    made.group_size = spvc_compiler_get_execution_mode_argument_by_index(compiler, SpvExecutionModeLocalSize, 0);
    if (!read_constants(compiler, made)) return {};
    return made;
  }

  const char* error() const {
    return context_ ? spvc_context_get_last_error_string(context_.get()) : "no SPIRV-Cross context";
  }

 private:
  static bool ok(spvc_result result) { return result == SPVC_SUCCESS; }

  static bool bind(spvc_compiler compiler, unsigned set, unsigned binding, unsigned buffer) {
    spvc_msl_resource_binding resource;
    spvc_msl_resource_binding_init(&resource);
    resource.stage = SpvExecutionModelGLCompute;
    resource.desc_set = set;
    resource.binding = binding;
    resource.msl_buffer = buffer;
    return ok(spvc_compiler_msl_add_resource_binding(compiler, &resource));
  }

  static bool bind_all(spvc_compiler compiler) {
    for (unsigned binding = 0; binding < rota::runtime::kMaxBindings; ++binding) {
      if (!bind(compiler, 0, binding, binding)) return false;
    }
    return bind(compiler, SPVC_MSL_PUSH_CONSTANT_DESC_SET, SPVC_MSL_PUSH_CONSTANT_BINDING, rota::mtl::kMslParamsBuffer);
  }

  // SPIRV-Cross takes min, max and clamp from fast::, which may do as it likes with NaN.
  static std::string without_fast(std::string text) {
    constexpr std::string_view kFast = "fast::", kPrecise = "precise::";
    for (std::size_t at = 0; (at = text.find(kFast, at)) != std::string::npos;)
      text.replace(at, kFast.size(), kPrecise);
    return text;
  }

  static bool read_constants(spvc_compiler compiler, Translation& made) {
    const spvc_specialization_constant* list = nullptr;
    std::size_t count = 0;
    if (!ok(spvc_compiler_get_specialization_constants(compiler, &list, &count))) return false;
    for (const spvc_specialization_constant& each : std::span(list, count)) {
      const spvc_type type = spvc_compiler_get_type_handle(
          compiler, spvc_constant_get_type(spvc_compiler_get_constant_handle(compiler, each.id)));
      const bool is_macro = made.text.find("#ifndef SPIRV_CROSS_CONSTANT_ID_" + std::to_string(each.constant_id) +
                                           "\n") != std::string::npos;
      made.constants.push_back(
          {each.constant_id, is_macro ? MslConstantKind::macro : MslConstantKind::function,
           spvc_type_get_basetype(type) == SPVC_BASETYPE_BOOLEAN ? MslConstantType::boolean : MslConstantType::uint});
    }
    return true;
  }

  std::unique_ptr<spvc_context_s, ContextDeleter> context_;
};

std::vector<SpvId> read_words(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<SpvId> words(file ? static_cast<std::size_t>(file.tellg()) / sizeof(SpvId) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * sizeof(SpvId)));
  return words;
}

// A row of the table, and what it refers to: included twice by msl_table.cpp.
std::string row_of(const Translation& made, const std::string& name) {
  std::string constants;
  for (const MslConstant& each : made.constants) {
    constants += "{" + std::to_string(each.index) +
                 ", MslConstantKind::" + (each.kind == MslConstantKind::macro ? "macro" : "function") +
                 ", MslConstantType::" + (each.type == MslConstantType::boolean ? "boolean" : "uint") + "}, ";
  }
  const std::string count = std::to_string(made.constants.size());
  return "#ifdef ROTA_MSL_ROW\n{\"" + name + "\", k_" + name + "_text, k_" + name + "_constants, " +
         std::to_string(made.group_size) + "},\n#else\nconstexpr std::array<MslConstant, " + count + "> k_" + name +
         "_constants{{" + constants + "}};\nconstexpr const char* k_" + name + "_text = R\"msl(" + made.text +
         ")msl\";\n#endif\n";
}

bool write(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: rota_spirv_to_msl KERNEL.spv NAME KERNEL.metal KERNEL.msl.inc\n");
    return 2;
  }
  Translator translator;
  const Translation made = translator.translate(read_words(argv[1]), argv[2]);
  if (made.text.empty()) {
    std::fprintf(stderr, "%s: does not translate to MSL: %s\n", argv[1], translator.error());
    return 1;
  }
  return write(argv[3], made.text) && write(argv[4], row_of(made, argv[2])) ? 0 : 1;
}
