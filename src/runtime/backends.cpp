#include <array>

#include "runtime/backend.h"

namespace rota {

namespace cpu {
extern const runtime::BackendEntry kBackend;
}
#if ROTA_HAS_VULKAN
namespace vulkan {
extern const runtime::BackendEntry kBackend;
}
#endif
#if ROTA_HAS_METAL
namespace metal {
extern const runtime::BackendEntry kBackend;
}
#endif

namespace runtime {

std::span<const BackendEntry> backends() noexcept {
  static const std::array table{
      cpu::kBackend,
#if ROTA_HAS_VULKAN
      vulkan::kBackend,
#endif
#if ROTA_HAS_METAL
      metal::kBackend,
#endif
  };
  return table;
}

}  // namespace runtime
}  // namespace rota
