#include <algorithm>

#include "ops/attend/attend.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/dense_side.h"
#include "ops/attend/plain_side.h"
#include "ops/attend/sealed_side.h"

// A work item is one KV split for one kv head: the keys of a range for all vectors of a query tile.
//
//                      key block     key block     key block
//                   |..[key key key|key key key key|key key]......|      . not this split's
//   query vector 0  |   x   x   x  | x   x   x   x | x   x        |      x a logit, then a weight
//   query vector 1  |   x   x   x  | x   x   x   x | x   x        |      - a key that the vector does not see:
//   ...             |   -   x   x  | x   x   x   x | x   -        |        kNoLogit, a weight of 0
//                     ---------------------------->
//                     all vectors of one block, then the next: find logits, raise max_logit, weigh, add values
//
// - Blocks begin at multiples of kKeyBlock: what a vector adds up together depends on positions alone.
// - A vector that sees none of a block's keys is not touched by it, and a value that it does not see is not multiplied.
// - Every number that a block needs was prefetched while the block before it was computed, in this work item or the
// last.
// - After each block partial results are those of the keys so far (online_softmax.h).

namespace rota::ops {
namespace {

// How one side is computed with.
enum class Path : std::uint8_t { bytes, dense, plain };

class SplitKernel {
 public:
  SplitKernel(const runtime::CpuCall& call, const AttendSimd& simd) noexcept
      : p_(call.params_as<AttendSplitParams>()),
        plan_(reinterpret_cast<const std::uint32_t*>(call.bound[kAttendSplitBindingPlan])),
        partials_(reinterpret_cast<float*>(call.bound[kAttendSplitBindingPartials])),
        k_(call.bound[kAttendSplitBindingKeys], p_.k, key_shape(call), plan_),
        v_(call.bound[kAttendSplitBindingValues], p_.v, value_shape(call), plan_),
        k_path_(path_of(k_)),
        v_path_(path_of(v_)),
        vectors_(p_, reinterpret_cast<const float*>(call.bound[kAttendSplitBindingQueries]), k_.padded_dim()),
        softmax_(simd, v_.padded_dim()),
        means_(k_, simd),
        sealed_keys_(k_, simd, matrix_, means_),
        sealed_values_(v_, simd, matrix_),
        dense_keys_(k_, simd),
        dense_values_(v_, simd),
        plain_keys_(k_, simd, means_),
        plain_values_(v_, simd) {}

  SplitKernel(const SplitKernel&) = delete;
  SplitKernel& operator=(const SplitKernel&) = delete;

  // What `next` begins with is prefetched while this one ends.
  void run(std::uint64_t item, std::uint64_t next) noexcept {
    const WorkItem work = work_item(item);
    const WorkItem after = work_item(next);
    vectors_.prefetch(work.tile, work.head, k_.sealed());
    prefetch_keys(work.first_block());
    begin(work);
    prefetch_values(work.first_block());
    if (next != item) vectors_.prefetch(after.tile, after.head, k_.sealed());
    for (HeadBlock block = work.first_block(); !block.keys.empty();) {
      const HeadBlock more = HeadBlock::first_of(work.head, {block.keys.end, work.keys.end});
      compute({block, more.keys.empty() ? after.first_block() : more});
      block = more;
    }
    for (std::uint32_t i = 0; i < vectors_.count(); ++i) {
      softmax_.write_partial(i, partials_ + (work.first_partial + i) * partial_floats(v_.dim()));
    }
  }

 private:
  struct WorkItem {
    const QueryTile& tile;
    SequenceHead head;
    KeyRange keys;
    std::uint64_t first_partial;

    HeadBlock first_block() const noexcept { return HeadBlock::first_of(head, keys); }
  };

  WorkItem work_item(std::uint64_t item) const noexcept {
    const std::uint64_t head = item % p_.kv_heads;
    const KvSplit& split = plan_.kv_split(plan_.word(static_cast<std::uint32_t>(p_.first_split + item / p_.kv_heads)));
    const QueryTile& tile = plan_.query_tile(split.query_tile);
    return {tile,
            {&plan_.sequence(tile.sequence), head},
            {split.first_key, std::uint64_t{split.first_key} + split.keys},
            std::uint64_t{split.first_partial} - p_.first_partial + head * tile.vectors};
  }

  SideShape key_shape(const runtime::CpuCall& call) const noexcept {
    return {.format = call.constants[kAttendSplitConstantKeyFormat],
            .dim = call.constants[kAttendSplitConstantKeyDim],
            .page = p_.k_page,
            .side = kKeys,
            .has_mean = call.constants[kAttendSplitConstantHasMean] != 0,
            .sinks = (p_.flags & kKeySinks) != 0,
            .table = reinterpret_cast<const std::uint32_t*>(call.bound[kAttendSplitBindingKeyTable])};
  }
  SideShape value_shape(const runtime::CpuCall& call) const noexcept {
    return {.format = call.constants[kAttendSplitConstantValueFormat],
            .dim = call.constants[kAttendSplitConstantValueDim],
            .page = p_.v_page,
            .side = kValues,
            .has_mean = false,
            .sinks = (p_.flags & kValueSinks) != 0,
            .table = reinterpret_cast<const std::uint32_t*>(call.bound[kAttendSplitBindingValueTable])};
  }
  Path path_of(const SideMemory& side) const noexcept {
    if (side.sealed() && (p_.flags & kF32Arithmetic) == 0) return Path::bytes;
    return side.in_rows() ? Path::dense : Path::plain;
  }

  // Unless it was, while another block was computed.
  void prefetch_keys(const HeadBlock& first) noexcept {
    if (k_path_ == Path::bytes) sealed_keys_.prefetch(first);
    if (k_path_ == Path::dense) dense_keys_.prefetch(first);
  }
  void prefetch_values(const HeadBlock& first) noexcept {
    if (v_path_ == Path::bytes) sealed_values_.prefetch(first);
    if (v_path_ == Path::dense) dense_values_.prefetch(first);
  }

  void begin(const WorkItem& work) noexcept {
    vectors_.begin_tile(work.tile, work.head);
    softmax_.begin_tile(vectors_.count());
    means_.begin_tile();
    switch (k_path_) {
      case Path::bytes: sealed_keys_.begin_tile(vectors_); break;
      case Path::dense: dense_keys_.begin_tile(vectors_); break;
      case Path::plain: plain_keys_.begin_tile(); break;
    }
    switch (v_path_) {
      case Path::bytes: sealed_values_.begin_tile(vectors_.count()); break;
      case Path::dense: break;
      case Path::plain: plain_values_.begin_tile(); break;
    }
  }

  void compute(const BlockPair& blocks) noexcept {
    vectors_.begin_block(blocks.now);
    switch (k_path_) {
      case Path::bytes: sealed_keys_.find_logits(blocks, vectors_, softmax_); break;
      case Path::dense: dense_keys_.find_logits(blocks, vectors_, softmax_); break;
      case Path::plain: plain_keys_.find_logits(blocks.now, vectors_, softmax_); break;
    }
    vectors_.finish_logits(softmax_.logits());
    softmax_.raise_max_logits(vectors_);
    switch (v_path_) {
      case Path::bytes: sealed_values_.add(blocks, vectors_, softmax_); break;
      case Path::dense: dense_values_.add(blocks, vectors_, softmax_); break;
      case Path::plain: plain_values_.add(blocks.now, vectors_, softmax_); break;
    }
  }

  const AttendSplitParams& p_;
  const PlanReader plan_;
  float* const partials_;
  const SideMemory k_, v_;
  const Path k_path_, v_path_;
  QueryVectors vectors_;
  OnlineSoftmax softmax_;
  PageMeans means_;
  MatrixScratch matrix_;  // one for both sides: keys of a block are done with before its values begin
  SealedKeys sealed_keys_;
  SealedValues sealed_values_;
  DenseKeys dense_keys_;
  DenseValues dense_values_;
  PlainKeys plain_keys_;
  PlainValues plain_values_;
};

}  // namespace

void attend_split_cpu(const runtime::CpuCall& call) noexcept {
  const AttendSimd& simd = attend_simd(core::best_isa());
  auto& kernel = call.emplace<SplitKernel>(call, simd);
  for (std::uint64_t item = call.first_item; item < call.last_item; ++item) {
    kernel.run(item, call.after(item));
  }
  if (simd.matrix != nullptr) simd.matrix->release();
}

}  // namespace rota::ops
