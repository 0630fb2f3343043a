#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/config_model.h"
#include "model_checks.h"

// A config.json from anywhere: to the shape of a cache, and to what that cache takes.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rota;
  const auto model = tool::model_of_config({reinterpret_cast<const char*>(data), size});
  if (model) {
    fuzz::check_model(*model);
  } else {
    fuzz::require(model.error().code == Errc::io && !model.error().message.empty());
  }
  return 0;
}
