#pragma once

#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/extent.h"
#include "rota/device.h"
#include "rota/view.h"
#include "runtime/command.h"
#include "runtime/inside.h"

namespace rota::runtime {

// The device as an op's check sees it: plain data, so that checks run for devices that are not here.
struct Target {
  const DeviceState* device;  // identity only
  std::string_view id;
  Limits limits;
  DeviceKind kind = DeviceKind::cpu;

  bool is_cpu() const noexcept { return kind == DeviceKind::cpu; }
};

// A view that a kernel may use: the bytes to bind, and where the view's first element lies in them.
struct Bindable {
  core::ByteRange bytes;        // aligned, as Binding wants them
  core::ByteRange touched;      // the whole words that the view covers
  std::uint64_t first_element;  // counted from bytes.begin
};

// Refuses what one binding of the device cannot address. what() begins the message, and is made only then.
template <class What>
Status check_binding(const Target& target, std::uint64_t bytes, const What& what) {
  if (bytes <= target.limits.max_binding_bytes) return {};
  return Error{Errc::unsupported, core::text("{}; {} can address {} bytes in one binding", what(), target.id,
                                             target.limits.max_binding_bytes)};
}

// The same for what a call uploads.
template <class What>
Status check_upload(const Target& target, std::uint64_t bytes, const What& what) {
  return check_binding(target, core::round_up(bytes, kBindingAlignment), what);
}

// Check buffer, device, dtype, bounds and the device's limit.
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const View& view);

// As above, and no two elements may share a place: this view is for writing.
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const MutView& view);
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SlotView& view);
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SealedView& view);  // in bytes
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const Counter& counter);  // in bytes

// One side of a call that must not share bytes with another.
struct Bound {
  core::Argument argument;
  const Buffer& buffer;
  const Bindable& view;
};

// `or_else` says what else would be allowed.
Status check_apart(std::string_view op, const Bound& source, const Bound& target, std::string_view or_else = {});

Binding bind(const Buffer& buffer, const Bindable& view);

// For a kernel that reads units of kUnitBytes: the last one is whole.
Binding bind_in_units(const Buffer& buffer, const Bindable& view);

// What stands where a kernel's constants leave a binding unused: it is never touched, so nobody waits for it.
Binding bind_untouched(const Buffer& buffer, const Bindable& view);

}  // namespace rota::runtime
