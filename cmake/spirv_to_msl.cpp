// Build tool: translates one kernel from SPIR-V to Metal's shading language. Binding i becomes
// buffer i and push constants become buffer 30, whatever the order of use.

#include <spirv_cross/spirv_cross_c.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "runtime/command.h"

namespace {

constexpr unsigned kPushConstantBuffer = 30;

struct ContextDeleter {
  void operator()(spvc_context context) const { spvc_context_destroy(context); }
};

class Translator {
 public:
  Translator() {
    spvc_context context = nullptr;
    if (spvc_context_create(&context) == SPVC_SUCCESS) context_.reset(context);
  }

  // Empty on failure; error() tells why.
  std::string translate(const std::vector<SpvId>& words, const char* entry_point) {
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
    return done ? text : "";
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
    return bind(compiler, SPVC_MSL_PUSH_CONSTANT_DESC_SET, SPVC_MSL_PUSH_CONSTANT_BINDING, kPushConstantBuffer);
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: rota_spirv_to_msl KERNEL.spv NAME KERNEL.metal\n");
    return 2;
  }
  Translator translator;
  const std::string text = translator.translate(read_words(argv[1]), argv[2]);
  if (text.empty()) {
    std::fprintf(stderr, "%s: does not translate to MSL: %s\n", argv[1], translator.error());
    return 1;
  }
  std::ofstream file(argv[3]);
  file << text;
  file.close();
  return file ? 0 : 1;
}
