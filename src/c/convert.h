#pragma once

#include <optional>
#include <vector>

#include "c/handles.h"
#include "c/status.h"
#include "c/structs.h"
#include "rota/c.h"
#include "rota/rota.h"

// From structs of C to those of C++: one function for each. They check what C++ cannot see, such as sizes, handles and
// numbers of enumerators; the rest is checked by the call itself.

namespace rota::c {

Status buffer_of(const Where& where, const rota_buffer* from, Buffer& to);

// To a View or a MutView.
template <Access A>
Status view_of(const Where& where, const rota_view* from, BasicView<A>& to) {
  rota_view view;
  if (Status status = take(where, from, view); !status) return status;
  if (Status status = buffer_of(where.in("buffer"), view.buffer, to.buffer); !status) return status;
  if (Status status = choose(where.in("dtype"), view.dtype, kDTypes.size(), to.dtype); !status) return status;
  to.shape = {view.tokens, view.heads, view.dim};
  to.offset = view.offset;
  to.token_stride = view.token_stride;
  to.head_stride = view.head_stride;
  to.dim_stride = view.dim_stride;
  return {};
}

// The same, or none for NULL.
template <Access A>
Status view_of(const Where& where, const rota_view* from, std::optional<BasicView<A>>& to) {
  if (from == nullptr) return {};
  return view_of(where, from, to.emplace());
}

Status slots_of(const Where& where, const rota_slot_view* from, SlotView& to);
Result<Codec> sealed_codec_of(const Where& where, const char* name);
Result<PageFormat> format_of(const Where& where, const rota_page_format* from);
Result<SealedView> sealed_of(const Where& where, const rota_sealed_view* from);
Status runs_of(const Where& where, const rota_token_run* from, std::size_t count, std::vector<TokenRun>& to);
Result<KvCacheSpec> spec_of(const Where& where, const rota_kv_cache_spec* from);
Result<Rotary> rotary_of(const Where& where, const rota_rotary* from);

constexpr Sequence sequence_of(rota_sequence from) noexcept { return {from.cache, from.index, from.generation}; }

// And back.
constexpr rota_sequence c_sequence(Sequence from) noexcept { return {from.cache, from.index, from.generation}; }
rota_page_format c_format(const PageFormat& from) noexcept;
void c_group(const KvGroup& from, GroupOfSaved& to);

// The members that a codec has of those that C names.
void put_options(const Codec& from, rota_codec_options& to) noexcept;
Status take_options(const Where& where, const rota_codec_options& from, Codec& to);

// The numbers of an optional: 0, or ROTA_NONE where 0 is a value, is none.
template <class Number>
constexpr std::optional<Number> if_not_zero(Number number) noexcept {
  return number == 0 ? std::nullopt : std::optional(number);
}
constexpr std::optional<std::uint64_t> if_not_none(std::uint64_t number) noexcept {
  return number == ROTA_NONE ? std::nullopt : std::optional(number);
}

// A list of plain numbers. NULL goes with a count of 0 alone.
template <class Number>
Result<std::span<const Number>> list_of(const Where& where, const Number* first, std::size_t count) {
  if (count != 0) {
    if (Status status = check_given(where, first); !status) return status.error();
  }
  return std::span<const Number>(first, count);
}

}  // namespace rota::c
