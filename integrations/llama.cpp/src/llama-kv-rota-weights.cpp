#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "ggml-cpp.h"
#include "gguf.h"
#include "llama-impl.h"
#include "llama-kv-rota-store.h"

// What tells weights from others. The files are asked, as tensors in memory are laid out for the machine.

namespace llama_rota {
namespace {

constexpr uint64_t kPlaces = 3, kPlaceBytes = 4096;

// The tokenizer, chat templates, titles and the like change no key and no value.
bool matters(const std::string& key) {
  if (key == "general.architecture") return true;
  for (const char* prefix : {"general.", "tokenizer.", "split.", "quantize."}) {
    if (key.rfind(prefix, 0) == 0) return false;
  }
  return true;
}

// The beginning, the middle and the end; all of what is small.
std::string digest_of(std::ifstream& file, uint64_t offset, uint64_t size) {
  digest result;
  std::string bytes;
  const bool is_small = size <= kPlaces * kPlaceBytes;
  for (uint64_t place = 0; place < (is_small ? 1 : kPlaces); ++place) {
    bytes.resize(is_small ? size : kPlaceBytes);
    file.seekg(static_cast<std::streamoff>(offset + (size - bytes.size()) / (kPlaces - 1) * place));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    result.add(bytes.data(), bytes.size());
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(result.value()));
  return digits;
}

std::string facts_of(const std::string& path) {
  ggml_context* tensors = nullptr;
  const gguf_context_ptr header(gguf_init_from_file(path.c_str(), {/*.no_alloc =*/true, /*.ctx =*/&tensors}));
  const ggml_context_ptr owner(tensors);
  std::ifstream file(path, std::ios::binary);
  if (!header || !file) throw std::runtime_error("--rota: " + path + " cannot be read for the store's name of it");
  std::string facts;
  for (int64_t i = 0; i < gguf_get_n_kv(header.get()); ++i) {
    const std::string key = gguf_get_key(header.get(), i);
    if (matters(key)) facts += key + " = " + gguf_kv_to_str(header.get(), static_cast<int>(i)) + "\n";
  }
  for (int64_t i = 0; i < gguf_get_n_tensors(header.get()); ++i) {
    const char* const name = gguf_get_tensor_name(header.get(), i);
    const ggml_tensor* const tensor = ggml_get_tensor(tensors, name);
    facts += std::string(name) + " " + ggml_type_name(gguf_get_tensor_type(header.get(), i));
    for (const int64_t extent : tensor->ne) facts += " " + std::to_string(extent);
    const uint64_t offset = gguf_get_data_offset(header.get()) + gguf_get_tensor_offset(header.get(), i);
    facts += " " + digest_of(file, offset, gguf_get_tensor_size(header.get(), i)) + "\n";
  }
  if (!file) throw std::runtime_error("--rota: " + path + " is shorter than it says");
  return facts;
}

}  // namespace

std::string weights_facts(const std::vector<std::string>& files) {
  std::string facts = "gguf 1\n";
  for (const std::string& path : files) facts += facts_of(path);
  return facts;
}

}  // namespace llama_rota
