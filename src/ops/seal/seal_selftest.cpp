#include "core/error.h"
#include "runtime/selftest_pages.h"

namespace rota::ops {

Status seal_selftest(Device& subject, Device& reference) {
  for (const PageFormat& format : self_test_formats()) {
    auto found = self_test_sealed(subject, format);
    if (!found) return found.error();
    auto wanted = self_test_sealed(reference, format);
    if (!wanted) return wanted.error();
    if (*found == *wanted) continue;
    return Error{Errc::internal, core::text("seal at {} bits, head size {}, differs between {} and {}",
                                            std::uint32_t{format.codec.bits}, std::uint32_t{format.head_dim},
                                            subject.info().id, reference.info().id)};
  }
  return {};
}

}  // namespace rota::ops
