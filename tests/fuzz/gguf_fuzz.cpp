#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/memory_bytes.h"
#include "model/model.h"
#include "model_checks.h"

// A GGUF file from anywhere: to its header, to the shape of a cache, and to what that cache takes.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rota;
  test::MemoryBytes source(std::as_bytes(std::span(data, size)));
  const auto header = tool::read_gguf(source);
  if (!header) {
    fuzz::require(header.error().code == Errc::io && !header.error().message.empty());
    return 0;
  }
  const auto model = tool::model_of(*header);
  if (model) fuzz::check_model(*model);
  return 0;
}
