#include <algorithm>

#include "c/convert.h"

// Views and page formats.

namespace rota::c {
namespace {

constexpr std::uint32_t kSides = 2, kScaleRules = 3;
static_assert(static_cast<std::uint32_t>(DType::f32) == ROTA_F32 &&
              static_cast<std::uint32_t>(DType::f16) == ROTA_F16 &&
              static_cast<std::uint32_t>(DType::bf16) == ROTA_BF16 && kDTypes.size() == 3);
static_assert(static_cast<std::uint32_t>(KvSide::keys) == ROTA_KEYS &&
              static_cast<std::uint32_t>(KvSide::values) == ROTA_VALUES);
static_assert(static_cast<std::uint32_t>(ScaleRule::rms) == ROTA_SCALE_RMS &&
              static_cast<std::uint32_t>(ScaleRule::least_squares) == ROTA_SCALE_LEAST_SQUARES &&
              static_cast<std::uint32_t>(ScaleRule::search) == ROTA_SCALE_SEARCH);

constexpr Turbo kTurbo = turbo(4);
constexpr rota_codec_options kOptions = ROTA_CODEC_OPTIONS_INIT;
static_assert(static_cast<std::uint32_t>(kTurbo.scale) == kOptions.scale && kTurbo.seed == kOptions.seed &&
              kTurbo.key_mean == (kOptions.key_mean == 1));
constexpr rota_page_format kFormat = ROTA_PAGE_FORMAT_INIT;
static_assert(kFormat.scale == kOptions.scale && kFormat.seed == kOptions.seed &&
              kFormat.key_mean == kOptions.key_mean);
static_assert(kFormat.tokens == PageFormat{.codec = kTurbo, .side = KvSide::keys, .head_dim = 16}.tokens);
static_assert(kPageDescriptionBytes == ROTA_PAGE_DESCRIPTION_BYTES);

constexpr rota_token_run kRun = ROTA_TOKEN_RUN_INIT;
constexpr TokenRun kTokens{.tokens = 0, .position = 0, .capacity = 0};
static_assert(static_cast<std::uint32_t>(kTokens.when_full) == kRun.when_full && kTokens.page_table.empty());
static_assert(static_cast<std::uint32_t>(WhenFull::wrap) == ROTA_WHEN_FULL_WRAP &&
              static_cast<std::uint32_t>(WhenFull::refuse) == ROTA_WHEN_FULL_REFUSE);

template <class View, class Shape>
rota_status set_view(const Where& call, View* view, rota_buffer* buffer, rota_dtype dtype, const Shape& shape,
                     auto&& layout) {
  return answer([&]() -> Status {
    if (Status status = check_result(call.in("view"), view); !status) return status;
    Buffer memory;
    DType type{};
    if (Status status = buffer_of(call.in("buffer"), buffer, memory); !status) return status;
    if (Status status = choose(call.in("dtype"), dtype, kDTypes.size(), type); !status) return status;
    put(layout(memory, type, shape), view);
    return {};
  });
}

}  // namespace

Status buffer_of(const Where& where, const rota_buffer* from, Buffer& to) {
  if (Status status = check_handle(where, from); !status) return status;
  to = from->buffer;
  return {};
}

Status slots_of(const Where& where, const rota_slot_view* from, SlotView& to) {
  rota_slot_view view;
  if (Status status = take(where, from, view); !status) return status;
  if (Status status = buffer_of(where.in("buffer"), view.buffer, to.buffer); !status) return status;
  if (Status status = choose(where.in("dtype"), view.dtype, kDTypes.size(), to.dtype); !status) return status;
  to.shape = {view.pages, view.page_slots, view.heads, view.dim};
  to.offset = view.offset;
  to.page_stride = view.page_stride;
  to.slot_stride = view.slot_stride;
  to.head_stride = view.head_stride;
  to.dim_stride = view.dim_stride;
  return {};
}

Result<Codec> sealed_codec_of(const Where& where, const char* name) {
  if (Status status = check_given(where, name); !status) return status.error();
  const auto codec = codec_named(name);
  if (!codec) return Error{codec.error().code, where.text() + ": " + codec.error().message};
  const auto sealed = sealed_codec(codec.value());
  if (!sealed) return refuse(where, joined({"\"", name, "\""}), "a codec of sealed pages, such as \"turbo4\"");
  return *sealed;
}

void put_options(const Codec& from, rota_codec_options& to) noexcept {
  to.key_mean = 0;
  to.seed = 0;
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.scale; }) to.scale = static_cast<rota_scale_rule>(one.scale);
        if constexpr (requires { one.key_mean; }) to.key_mean = one.key_mean ? 1 : 0;
        if constexpr (requires { one.seed; }) to.seed = one.seed;
      },
      from);
}

Status take_options(const Where& where, const rota_codec_options& from, Codec& to) {
  ScaleRule scale{};
  bool key_mean = false;
  if (Status status = choose(where.in("scale"), from.scale, kScaleRules, scale); !status) return status;
  if (Status status = choose(where.in("key_mean"), from.key_mean, key_mean); !status) return status;
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.scale; }) one.scale = scale;
        if constexpr (requires { one.key_mean; }) one.key_mean = key_mean;
        if constexpr (requires { one.seed; }) one.seed = from.seed;
      },
      to);
  return {};
}

Result<PageFormat> format_of(const Where& where, const rota_page_format* from) {
  rota_page_format format;
  if (Status status = take(where, from, format); !status) return status.error();
  auto codec = sealed_codec_of(where.in("codec"), format.codec);
  if (!codec) return codec.error();
  rota_codec_options options = kOptions;
  options.scale = format.scale;
  options.key_mean = format.key_mean;
  options.seed = format.seed;
  if (Status status = take_options(where, options, *codec); !status) return status.error();
  KvSide side{};
  if (Status status = choose(where.in("side"), format.side, kSides, side); !status) return status.error();
  return PageFormat{.codec = *codec, .side = side, .head_dim = format.head_dim, .tokens = format.tokens};
}

rota_page_format c_format(const PageFormat& from) noexcept {
  rota_codec_options options = kOptions;
  put_options(from.codec, options);
  rota_page_format to = kFormat;
  to.codec = name(kv_codec(from.codec)).data();
  to.side = static_cast<rota_kv_side>(KvSide{from.side});
  to.head_dim = from.head_dim;
  to.tokens = from.tokens;
  to.scale = options.scale;
  to.key_mean = options.key_mean;
  to.seed = options.seed;
  return to;
}

Result<SealedView> sealed_of(const Where& where, const rota_sealed_view* from) {
  rota_sealed_view view;
  if (Status status = take(where, from, view); !status) return status.error();
  Buffer buffer;
  if (Status status = buffer_of(where.in("buffer"), view.buffer, buffer); !status) return status.error();
  const auto format = format_of(where.in("format"), view.format);
  if (!format) return format.error();
  return SealedView{.buffer = std::move(buffer),
                    .format = format.value(),
                    .shape = {view.pages, view.heads},
                    .offset_bytes = view.offset_bytes,
                    .page_stride_bytes = view.page_stride_bytes,
                    .head_stride_bytes = view.head_stride_bytes};
}

Status runs_of(const Where& where, const rota_token_run* from, std::size_t count, std::vector<TokenRun>& to) {
  return each(where, from, count, [&](const Where& here, const rota_token_run& run) -> Status {
    TokenRun one{.tokens = run.tokens, .position = run.position, .capacity = run.capacity};
    const auto pages = list_of(here.in("page_table"), run.page_table, run.page_count);
    if (!pages) return pages.error();
    one.page_table = pages.value();
    if (Status status = choose(here.in("when_full"), run.when_full, 2, one.when_full); !status) return status;
    to.push_back(one);
    return {};
  });
}

namespace {

rota_view c_view(rota_buffer* handle, const View& from) noexcept {
  return {sizeof(rota_view),
          handle,
          static_cast<rota_dtype>(from.dtype),
          0,
          from.shape.tokens,
          from.shape.heads,
          from.shape.dim,
          from.offset,
          from.token_stride,
          from.head_stride,
          from.dim_stride};
}

rota_slot_view c_slots(rota_buffer* handle, const SlotView& from) noexcept {
  return {sizeof(rota_slot_view),
          handle,
          static_cast<rota_dtype>(from.dtype),
          0,
          from.shape.pages,
          from.shape.page_slots,
          from.shape.heads,
          from.shape.dim,
          from.offset,
          from.page_stride,
          from.slot_stride,
          from.head_stride,
          from.dim_stride};
}

}  // namespace

}  // namespace rota::c

using rota::Shape;
using rota::SlotShape;
using rota::SlotView;
using rota::Status;
using rota::View;
using rota::c::Where;

rota_status rota_view_token_major(rota_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t tokens,
                                  uint64_t heads, uint64_t dim) {
  return rota::c::set_view(Where{nullptr, "rota_view_token_major"}, view, buffer, dtype, Shape{tokens, heads, dim},
                           [&](const auto&... of) { return rota::c::c_view(buffer, View::token_major(of...)); });
}

rota_status rota_view_head_major(rota_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t tokens,
                                 uint64_t heads, uint64_t dim) {
  return rota::c::set_view(Where{nullptr, "rota_view_head_major"}, view, buffer, dtype, Shape{tokens, heads, dim},
                           [&](const auto&... of) { return rota::c::c_view(buffer, View::head_major(of...)); });
}

rota_status rota_slot_view_token_major(rota_slot_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t pages,
                                       uint64_t page_slots, uint64_t heads, uint64_t dim) {
  return rota::c::set_view(Where{nullptr, "rota_slot_view_token_major"}, view, buffer, dtype,
                           SlotShape{pages, page_slots, heads, dim},
                           [&](const auto&... of) { return rota::c::c_slots(buffer, SlotView::token_major(of...)); });
}

rota_status rota_slot_view_head_major(rota_slot_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t pages,
                                      uint64_t page_slots, uint64_t heads, uint64_t dim) {
  return rota::c::set_view(Where{nullptr, "rota_slot_view_head_major"}, view, buffer, dtype,
                           SlotShape{pages, page_slots, heads, dim},
                           [&](const auto&... of) { return rota::c::c_slots(buffer, SlotView::head_major(of...)); });
}

rota_status rota_sealed_view_packed(rota_sealed_view* view, rota_buffer* buffer, const rota_page_format* format,
                                    uint64_t pages, uint64_t heads) {
  return rota::c::answer([&]() -> Status {
    const Where call{nullptr, "rota_sealed_view_packed"};
    if (Status status = rota::c::check_result(call.in("view"), view); !status) return status;
    rota::Buffer memory;
    if (Status status = rota::c::buffer_of(call.in("buffer"), buffer, memory); !status) return status;
    const auto known = rota::c::format_of(call.in("format"), format);
    if (!known) return known.error();
    if (Status status = rota::check(known.value()); !status) return status;
    const auto packed = rota::SealedView::packed(memory, known.value(), {pages, heads});
    const rota_sealed_view value{
        sizeof(rota_sealed_view), buffer, format, pages, heads, packed.offset_bytes, packed.page_stride_bytes,
        packed.head_stride_bytes};
    rota::c::put(value, view);
    return {};
  });
}

rota_status rota_page_format_check(const rota_page_format* format) {
  return rota::c::answer([&]() -> Status {
    const Where call{nullptr, "rota_page_format_check"};
    const auto known = rota::c::format_of(call.in("format"), format);
    return known ? rota::check(known.value()) : known.error();
  });
}

rota_status rota_page_format_bytes(const rota_page_format* format, uint64_t* bytes) {
  return rota::c::answer([&]() -> Status {
    const Where call{nullptr, "rota_page_format_bytes"};
    if (Status status = rota::c::check_given(call.in("bytes"), bytes); !status) return status;
    const auto known = rota::c::format_of(call.in("format"), format);
    if (!known) return known.error();
    if (Status status = rota::check(known.value()); !status) return status;
    *bytes = rota::page_bytes(known.value());
    return {};
  });
}

rota_status rota_page_format_describe(const rota_page_format* format,
                                      uint8_t description[ROTA_PAGE_DESCRIPTION_BYTES]) {
  return rota::c::answer([&]() -> Status {
    const Where call{nullptr, "rota_page_format_describe"};
    if (Status status = rota::c::check_given(call.in("description"), description); !status) return status;
    const auto known = rota::c::format_of(call.in("format"), format);
    if (!known) return known.error();
    if (Status status = rota::check(known.value()); !status) return status;
    const auto bytes = rota::describe(known.value());
    std::memcpy(description, bytes.data(), bytes.size());
    return {};
  });
}

rota_status rota_page_format_read(const void* description, size_t bytes, rota_page_format* format) {
  return rota::c::answer([&]() -> Status {
    const Where call{nullptr, "rota_page_format_read"};
    if (Status status = rota::c::check_given(call.in("description"), description); !status) return status;
    if (Status status = rota::c::check_result(call.in("format"), format); !status) return status;
    const auto known = rota::read_description({static_cast<const std::byte*>(description), bytes});
    if (!known) return known.error();
    rota::c::put(rota::c::c_format(known.value()), format);
    return {};
  });
}
