#include <array>

#include "runtime/backend.h"

namespace rota {

namespace cpu {
extern const runtime::BackendEntry kBackend;
}
#if ROTA_HAS_VULKAN
namespace vk {
extern const runtime::BackendEntry kBackend;
}
#endif
#if ROTA_HAS_METAL
namespace mtl {
extern const runtime::BackendEntry kBackend;
}
#endif

namespace runtime {

std::span<const BackendEntry> backends() noexcept {
  static const std::array table{
      cpu::kBackend,
#if ROTA_HAS_VULKAN
      vk::kBackend,
#endif
#if ROTA_HAS_METAL
      mtl::kBackend,
#endif
  };
  return table;
}

}  // namespace runtime
}  // namespace rota
