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

// A device as the checks of ops see it. Plain data, so that checks also run for devices that this machine lacks.
struct Target {
  const DeviceState* device;  // only compared
  std::string_view id;
  Limits limits;
  DeviceKind kind = DeviceKind::cpu;

  bool is_cpu() const noexcept { return kind == DeviceKind::cpu; }
};

// A checked view: the bytes to bind, and where its first element is in them.
struct Bindable {
  core::ByteRange bytes;        // begins on kBindingAlignment, ends on a word
  core::ByteRange touched;      // words that the view covers, wholly or in part
  std::uint64_t first_element;  // elements from bytes.begin on
};

// An error if one binding of the device cannot address `bytes`. what() begins its message, and is called only then.
template <class What>
Status check_binding(const Target& target, std::uint64_t bytes, const What& what) {
  if (bytes <= target.limits.max_binding_bytes) return {};
  return Error{Errc::unsupported, core::text("{}; {} can address {} bytes in one binding", what(), target.id,
                                             target.limits.max_binding_bytes)};
}

// The same for bytes that a call uploads.
template <class What>
Status check_upload(const Target& target, std::uint64_t bytes, const What& what) {
  return check_binding(target, core::round_up(bytes, kBindingAlignment), what);
}

// Checks buffer, device, type, bounds and the device's limit.
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const View& view);

// As above, for views that are written: no two elements may have the same address.
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const MutView& view);
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SlotView& view);
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SealedView& view);  // in bytes
Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const Counter& counter);  // in bytes

// An argument that must not share bytes with another.
struct Bound {
  core::Argument argument;
  const Buffer& buffer;
  const Bindable& view;
};

// An error if both touch the same bytes of one buffer. `or_else` ends the message: what else would be allowed.
Status check_apart(std::string_view op, const Bound& source, const Bound& target, std::string_view or_else = {});

Binding bind(const Buffer& buffer, const Bindable& view);

// For a kernel that reads units of kUnitBytes: the binding ends on a whole unit, or where the buffer does.
Binding bind_in_units(const Buffer& buffer, const Bindable& view);

// For a binding that a kernel does not use with these constants: it touches nothing, so that nobody waits for it. Best
// one that only this command, or one behind a barrier, writes: bindings begin up to an alignment before what they
// touch, and validation takes what a neighbour writes there for a hazard.
Binding untouched(Binding binding);

}  // namespace rota::runtime
