#include "core/error.h"

namespace rota::core {

std::string Argument::text() const {
  std::string whole(name);
  if (index) whole += core::text("[{}]", *index);
  for (const std::string_view part : {field, subfield}) {
    if (!part.empty()) whole += core::text(".{}", part);
  }
  return whole;
}

}  // namespace rota::core

namespace rota::inline ROTA_ABI {

std::string_view name(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid argument";
    case Errc::unsupported: return "unsupported";
    case Errc::no_device: return "no device";
    case Errc::out_of_memory: return "out of memory";
    case Errc::out_of_pages: return "out of pages";
    case Errc::busy: return "busy";
    case Errc::device_lost: return "device lost";
    case Errc::pipeline_failed: return "pipeline failed";
    case Errc::io: return "input/output";
    case Errc::internal: return "internal";
  }
  return "unknown";
}

}  // namespace rota::inline ROTA_ABI
