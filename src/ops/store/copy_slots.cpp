#include "ops/store/copy_slots.h"

#include <array>
#include <vector>

#include "core/check.h"
#include "ops/store/store.h"
#include "runtime/recorder.h"

namespace rota::ops {
namespace {

constexpr std::string_view kCopySlots = "copy_slots";

// Every slot of every page as a token of one tensor: a page is so many tokens further on.
View all_slots(const SlotView& pages, std::uint64_t page_tokens) {
  return {.buffer = pages.buffer,
          .dtype = pages.dtype,
          .shape = {.tokens = (pages.shape.pages - 1) * page_tokens + pages.shape.page_slots,
                    .heads = pages.shape.heads,
                    .dim = pages.shape.dim},
          .offset = pages.offset,
          .token_stride = pages.slot_stride,
          .head_stride = pages.head_stride,
          .dim_stride = pages.dim_stride};
}

}  // namespace

void copy_slots(Encoder& encoder, const CopySlots& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    if (call.copies.empty()) return {};
    const std::uint64_t page_tokens = call.from.page_stride / call.from.slot_stride;
    const StorePair pair{all_slots(call.from, page_tokens), call.to};
    const runtime::Target target = recorder.target();
    auto from = runtime::check_view(target, {kCopySlots, {"from"}}, pair.from);
    if (!from) return from.error();
    auto to = runtime::check_view(target, {kCopySlots, {"to"}}, pair.to);
    if (!to) return to.error();
    // The plan counts tokens and pages in words.
    Status counted = core::first_error({core::check_index({kCopySlots, {"from"}}, pair.from.shape.tokens),
                                        core::check_index({kCopySlots, {"to"}}, pair.to.shape.pages)});
    if (!counted) return counted;

    std::vector<std::uint32_t> words;
    for (const SlotCopy& copy : call.copies) {
      for (std::uint64_t slot = 0; slot < copy.tokens; ++slot) {
        for (const std::uint64_t word : {copy.from * page_tokens + slot, std::uint64_t{copy.to}, slot}) {
          words.push_back(static_cast<std::uint32_t>(word));
        }
      }
    }
    const auto what = [&] {
      return core::text("{}: a plan of {} bytes", kCopySlots, words.size() * sizeof(std::uint32_t));
    };
    if (Status status = runtime::check_upload(target, words.size() * sizeof(std::uint32_t), what); !status) {
      return status;
    }
    auto plan = recorder.upload(std::as_bytes(std::span(words)));
    if (!plan) return plan.error();
    recorder.set_shape({words.size() / kPlanWords, call.to.shape.heads, call.to.shape.dim});
    dispatch_store(recorder, pair, {*from, *to}, {.plan = *std::move(plan), .tokens = words.size() / kPlanWords});
    return {};
  });
}

}  // namespace rota::ops
