// The backends of the tests on software Metal, in place of the library's own table.

#include "runtime/backend.h"

#include <array>

namespace rota::cpu {
extern const runtime::BackendEntry kBackend;
}
namespace rota::mtl {
extern const runtime::BackendEntry kBackend;
}

namespace rota::runtime {

std::span<const BackendEntry> backends() noexcept {
  static const std::array table{cpu::kBackend, mtl::kBackend};
  return table;
}

}  // namespace rota::runtime
