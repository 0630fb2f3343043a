#include "runtime/target.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "runtime/device_state.h"
#include "runtime/strides.h"

namespace rota::runtime {
namespace {

std::string dtype_names() {
  std::string names;
  for (const DTypeInfo& dtype : kDTypes) names += core::text("{}{}", names.empty() ? "" : ", ", dtype.name);
  return names;
}

// What all kinds of views have in common.
struct Extents {
  const Buffer& buffer;
  std::optional<DType> dtype;  // none: elements are bytes
  std::uint64_t offset;
  std::span<const core::Axis> axes;
};

template <Access A>
std::array<core::Axis, 3> axes_of(const BasicView<A>& view) {
  return {{{view.shape.tokens, view.token_stride},
           {view.shape.heads, view.head_stride},
           {view.shape.dim, view.dim_stride}}};
}

std::array<core::Axis, 4> axes_of(const SlotView& view) {
  return {{{view.shape.pages, view.page_stride},
           {view.shape.page_slots, view.slot_stride},
           {view.shape.heads, view.head_stride},
           {view.shape.dim, view.dim_stride}}};
}

Result<Bindable> check_extents(const Target& target, const core::Refusal& refusal, const Extents& view) {
  if (!Inside::of(view.buffer)) return core::refuse(refusal, "a view of no buffer", "a buffer of {}", target.id);
  const DeviceState* const owner = Inside::of(view.buffer)->device().get();
  if (owner != target.device) {
    return core::refuse(refusal, core::text("in a buffer of another device ({})", owner->info().id),
                        "a buffer of the encoder's own {}", target.id);
  }
  if (view.dtype && !is_known(*view.dtype)) {
    return core::refuse(refusal, core::text("of dtype {}", static_cast<unsigned>(*view.dtype)), "{}", dtype_names());
  }
  if (view.offset == View::kOutside) return core::refuse(refusal, "a slice that leaves its view", "tokens inside it");

  const std::uint32_t element_bytes = view.dtype ? info(*view.dtype).bytes : 1;
  const auto alignment = view.dtype ? element_bytes : static_cast<std::uint32_t>(alignof(std::uint64_t));
  const auto base = reinterpret_cast<std::uintptr_t>(Inside::of(view.buffer)->memory()->host());
  if (target.is_cpu() && base % alignment != 0) {  // memory that was wrapped
    return core::refuse(
        refusal, core::text("in memory that begins {} bytes after a multiple of {}", base % alignment, alignment),
        "memory that is aligned to {} bytes", alignment);
  }
  const std::uint64_t size_bytes = view.buffer.size_bytes();
  const auto touched = core::byte_range(view.offset, view.axes, element_bytes);
  if (!touched || touched->end > size_bytes) {
    return core::refuse(refusal,
                        touched ? core::text("a view that ends at byte {}", touched->end)
                                : std::string("a view that ends beyond 2^64 bytes"),
                        "all of it inside its buffer of {} bytes", size_bytes);
  }
  constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);
  const std::uint64_t first_word = core::round_down(touched->begin, kWordBytes);
  const bool empty = touched->size() == 0;
  const core::ByteRange words{first_word, empty ? first_word : core::round_up(touched->end, kWordBytes)};
  const core::ByteRange bytes{core::round_down(touched->begin, kBindingAlignment), words.end};
  const auto what = [&] {
    return core::text("{}: {} spans {} bytes", refusal.op, refusal.argument.text(), bytes.size());
  };
  if (Status status = check_binding(target, bytes.size(), what); !status) return status.error();
  return Bindable{bytes, words, (touched->begin - bytes.begin) / element_bytes};
}

Result<Bindable> check_written(const Target& target, const core::Refusal& refusal, const Extents& view) {
  auto checked = check_extents(target, refusal, view);
  if (!checked || !core::may_overlap_itself(view.axes)) return checked;
  std::string strides;
  for (const core::Axis& axis : view.axes) strides += core::text("{}{}", strides.empty() ? "" : ", ", axis.stride);
  return core::refuse(refusal, core::text("a layout with strides {}", strides),
                      "strides that give every element a place of its own");
}

}  // namespace

Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const View& view) {
  return check_extents(target, refusal, {view.buffer, view.dtype, view.offset, axes_of(view)});
}

Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const MutView& view) {
  return check_written(target, refusal, {view.buffer, view.dtype, view.offset, axes_of(view)});
}

Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SlotView& view) {
  return check_written(target, refusal, {view.buffer, view.dtype, view.offset, axes_of(view)});
}

Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const SealedView& view) {
  constexpr std::uint64_t kStep = 64;
  if (Status status = check(view.format); !status) {
    return Error{status.error().code,
                 core::text("{}: {}: {}", refusal.op, refusal.argument.text(), status.error().message)};
  }
  struct Field {
    std::string_view name;
    std::uint64_t bytes;
  };
  for (const auto& [name, bytes] : {Field{"offset_bytes", view.offset_bytes},
                                    Field{"page_stride_bytes", effective(view.page_stride_bytes, view.shape.pages)},
                                    Field{"head_stride_bytes", effective(view.head_stride_bytes, view.shape.heads)}}) {
    if (bytes % kStep == 0 || bytes == View::kOutside) continue;
    return core::refuse(refusal, core::text("a view with {} of {}", name, bytes), "a multiple of {}", kStep);
  }
  const std::array<core::Axis, 3> axes{{{view.shape.pages, view.page_stride_bytes},
                                        {view.shape.heads, view.head_stride_bytes},
                                        {page_bytes(view.format), 1}}};
  return check_written(target, refusal, {view.buffer, {}, view.offset_bytes, axes});
}

Result<Bindable> check_view(const Target& target, const core::Refusal& refusal, const Counter& counter) {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (counter.offset_bytes % kBytes != 0) {
    return core::refuse(refusal, core::text("at byte {}", counter.offset_bytes), "a multiple of {}", kBytes);
  }
  const std::array<core::Axis, 1> axes{{{kBytes, 1}}};
  return check_written(target, refusal, {counter.buffer, {}, counter.offset_bytes, axes});
}

Status check_apart(std::string_view op, const Bound& source, const Bound& target, std::string_view or_else) {
  const core::ByteRange& from = source.view.touched;
  const core::ByteRange& to = target.view.touched;
  if (Inside::of(source.buffer) != Inside::of(target.buffer) || !from.overlaps(to)) return {};
  return core::refuse(
      {op, source.argument},
      core::text("in bytes {} to {} of one buffer with {}", from.begin, from.end, target.argument.text()),
      "bytes outside of its {} to {}{}", to.begin, to.end, or_else);
}

Binding bind(const Buffer& buffer, const Bindable& view) {
  return {Inside::of(buffer)->memory().get(), view.bytes, view.touched, Access::read};
}

Binding bind_in_units(const Buffer& buffer, const Bindable& view) {
  Binding binding = bind(buffer, view);
  // Not beyond the buffer, which may be an engine's: kernels load words of a unit that it ends in.
  const std::uint64_t buffer_end = core::round_up(buffer.size_bytes(), sizeof(std::uint32_t));
  binding.bytes.end = std::min(core::round_up(binding.bytes.end, kUnitBytes), buffer_end);
  return binding;
}

Binding untouched(Binding binding) {
  binding.touched = {};
  return binding;
}

}  // namespace rota::runtime
