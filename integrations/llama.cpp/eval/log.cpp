#include "log.h"

#include <utility>

namespace rota::eval {

Log::Log() { llama_log_set(keep, this); }

Log::~Log() { llama_log_set(nullptr, nullptr); }

void Log::keep(ggml_log_level level, const char* text, void* self) {
  Log& log = *static_cast<Log*>(self);
  const std::lock_guard lock(log.mutex_);
  if (level != GGML_LOG_LEVEL_CONT) log.level_ = level;
  log.said_.all += text;
  if (log.level_ == GGML_LOG_LEVEL_ERROR) log.said_.errors += text;
}

Log::Said Log::take() {
  const std::lock_guard lock(mutex_);
  Said said = std::exchange(said_, {});
  while (!said.errors.empty() && said.errors.back() == '\n') said.errors.pop_back();
  return said;
}

}  // namespace rota::eval
