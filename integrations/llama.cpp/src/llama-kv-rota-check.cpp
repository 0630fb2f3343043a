#include "llama-cpp.h"
#include "llama.h"

namespace {

// Only what is wrong: all else is said again when the weights are loaded.
struct quiet_log {
  ggml_log_callback callback = nullptr;
  void* user = nullptr;

  quiet_log() {
    llama_log_get(&callback, &user);
    llama_log_set(
        [](ggml_log_level level, const char* text, void* self) {
          const auto* const log = static_cast<const quiet_log*>(self);
          if (level >= GGML_LOG_LEVEL_ERROR && log->callback != nullptr) log->callback(level, text, log->user);
        },
        this);
  }
  ~quiet_log() { llama_log_set(callback, user); }
  quiet_log(const quiet_log&) = delete;
  quiet_log& operator=(const quiet_log&) = delete;
};

}  // namespace

// A context without memory builds every graph that the real one will.
bool llama_rota_check(const char* path_model, llama_model_params mparams, llama_context_params cparams) {
  if (cparams.rota == nullptr) return true;
  const quiet_log quiet;
  mparams.no_alloc = true;
  mparams.load_mode = LLAMA_LOAD_MODE_NONE;
  const llama_model_ptr model(llama_model_load_from_file(path_model, mparams));
  if (!model) return false;
  const llama_context_ptr context(llama_init_from_model(model.get(), cparams));
  return context != nullptr;
}
