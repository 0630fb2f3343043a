#include "rota/version.h"

namespace rota::inline ROTA_ABI {

Version version() noexcept { return {ROTA_VERSION_MAJOR, ROTA_VERSION_MINOR, ROTA_VERSION_PATCH, ROTA_VERSION}; }

}  // namespace rota::inline ROTA_ABI
