#pragma once

#include <llama.h>

#include <mutex>
#include <string>

namespace rota::eval {

// Keeps what llama.cpp says instead of printing it: sizes of caches are said nowhere else, and errors become sentences.
class Log {
 public:
  Log();
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // All that was said since the last call, and of it what went wrong.
  struct Said {
    std::string all, errors;
  };
  Said take();

 private:
  static void keep(ggml_log_level level, const char* text, void* self);

  std::mutex mutex_;  // weights are dequantized by threads
  Said said_;
  ggml_log_level level_ = GGML_LOG_LEVEL_NONE;
};

}  // namespace rota::eval
