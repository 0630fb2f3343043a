#include <algorithm>

#include "core/error.h"
#include "rota/kv_spec.h"

namespace rota::inline ROTA_ABI {
namespace {

bool are_alike(const KvCodec& a, const KvCodec& b) noexcept {
  if (a.index() != b.index()) return false;
  const auto* const dtype = std::get_if<DType>(&a);
  if (dtype != nullptr) return *dtype == *std::get_if<DType>(&b);
  const auto bits = [](const KvCodec& codec) {
    return std::visit([](const auto& sealed) { return std::uint32_t{sealed.bits}; }, *sealed_codec(codec));
  };
  return bits(a) == bits(b);
}

}  // namespace

std::string_view name(const KvCodec& codec) noexcept {
  const auto* const found =
      std::ranges::find_if(kCodecs, [&](const NamedCodec& known) { return are_alike(known.codec, codec); });
  return found == kCodecs.end() ? "?" : found->name;
}

Result<KvCodec> codec_named(std::string_view name) {
  return core::guarded([&]() -> Result<KvCodec> {
    std::string known;
    for (const NamedCodec& codec : kCodecs) {
      if (codec.name == name) return codec.codec;
      known += (known.empty() ? "" : ", ") + std::string(codec.name);
    }
    return Error{Errc::invalid_argument, core::text("there is no codec \"{}\"; wanted one of {}", name, known)};
  });
}

}  // namespace rota::inline ROTA_ABI
