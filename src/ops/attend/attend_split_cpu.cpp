#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/attend/attend.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/attend_rows.h"

namespace rota::ops {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
static_assert(kTileTokens % SideRows::kRowsAtOnce == 0 && kKeyBlock % kTileTokens == 0);

class SplitKernel {
 public:
  SplitKernel(const runtime::CpuCall& call, const AttendSimd& simd) noexcept
      : p_(call.params_as<AttendSplitParams>()),
        plan_(reinterpret_cast<const std::uint32_t*>(call.bound[kAttendSplitBindingPlan])),
        queries_(reinterpret_cast<const float*>(call.bound[kAttendSplitBindingQueries])),
        partials_(reinterpret_cast<float*>(call.bound[kAttendSplitBindingPartials])),
        simd_(simd),
        k_(call.bound[kAttendSplitBindingKeys], p_.k,
           {call.constants[kAttendSplitConstantKeyFormat], call.constants[kAttendSplitConstantKeyDim], p_.k_page, kKeys,
            call.constants[kAttendSplitConstantHasMean] != 0, (p_.flags & kKeySinks) != 0},
           plan_, simd),
        v_(call.bound[kAttendSplitBindingValues], p_.v,
           {call.constants[kAttendSplitConstantValueFormat], call.constants[kAttendSplitConstantValueDim], p_.v_page,
            kValues, false, (p_.flags & kValueSinks) != 0},
           plan_, simd) {}

  SplitKernel(const SplitKernel&) = delete;
  SplitKernel& operator=(const SplitKernel&) = delete;

  // A work item is one KV split and one kv head. What `next` begins with is prefetched while this one ends.
  void run(std::uint64_t item, std::uint64_t next) noexcept {
    const WorkItem work = work_item(item);
    after_ = work_item(next);
    head_ = work.head_of;
    k_.select(head_);
    v_.select(head_);
    vectors_ = work.query_tile->vectors;
    mean_page_ = kNever;
    seen_by_all_ = {0, kNever};
    all_plain_ = true;
    const std::uint64_t first_partial = work.split->first_partial + head_.head * vectors_;
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      prepare(i, work.query_tile->first_vector + i);
      seen_by_all_ = seen_by_all_.in(seen_[i]);
      all_plain_ = all_plain_ && is_plain(i);
      output_[i] = outputs_ + std::size_t{i} * v_.stride();
      max_logit_[i] = kNoLogit;
      std::fill_n(exp_sum_[i], kPadFloats, 0.0F);
    }
    for (std::uint32_t i = 0; i < std::bit_ceil(vectors_); ++i) {  // some of which may be nothing
      std::fill_n(outputs_ + std::size_t{i} * v_.stride(), v_.stride(), 0.0F);
    }
    const bool in_bytes = (p_.flags & kF32Arithmetic) == 0;
    if (k_.sealed() && in_bytes) {
      k_work_ = work_of(k_, simd_.tile.dot_keys);
      quantize_queries();
    }
    if (k_.in_rows()) simd_.dense.pack(query_, vectors_, k_.stride(), packed_);
    if (v_.sealed() && in_bytes) v_work_ = work_of(v_, simd_.tile.add_values);
    for (std::uint64_t at = work.keys.begin; at < work.keys.end; at = block_ + kKeyBlock) {
      block_ = core::round_down(at, kKeyBlock);
      keys_ = {at, std::min<std::uint64_t>(work.keys.end, block_ + kKeyBlock)};
      all_see_all_ = seen_by_all_.begin <= block_ && keys_.begin == block_ &&
                     std::min(seen_by_all_.end, keys_.end) == block_ + kKeyBlock;
      next_ = keys_.end < work.keys.end ? WorkItem{.head_of = head_, .keys = first_block({keys_.end, work.keys.end})}
                                        : WorkItem{.head_of = after_.head_of, .keys = first_block(after_.keys)};
      if (k_.sealed() && in_bytes) {
        find_logits_of_tiles();
      } else if (k_.in_rows()) {
        find_logits_of_rows();
      } else {
        find_logits();
      }
      raise_max_logits();
      if (v_.sealed() && in_bytes) {
        weigh_tiles();
        add_values_of_tiles();
      } else {
        weigh();
        v_.in_rows() ? add_values_of_rows() : add_values();
      }
    }
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      float* const partial = partials_ + (first_partial + i) * partial_floats(v_.dim());
      partial[0] = max_logit_[i];
      partial[1] = simd_.sum_of(exp_sum_[i]);
      std::copy_n(output_[i], v_.stride(), partial + kPadFloats);
    }
  }

 private:
  struct WorkItem {
    const KvSplit* split = nullptr;
    const QueryTile* query_tile = nullptr;
    SideRows::SequenceHead head_of;
    KeyRange keys;
  };

  WorkItem work_item(std::uint64_t item) const noexcept {
    const KvSplit& split = plan_.kv_split(plan_.word(static_cast<std::uint32_t>(p_.first_split + item / p_.kv_heads)));
    const QueryTile& tile = plan_.query_tile(split.query_tile);
    return {&split,
            &tile,
            {&plan_.sequence(tile.sequence), item % p_.kv_heads},
            {split.first_key, std::uint64_t{split.first_key} + split.keys}};
  }

  static KeyRange first_block(const KeyRange& keys) noexcept {
    return {keys.begin, std::min<std::uint64_t>(keys.end, core::round_down(keys.begin, kKeyBlock) + kKeyBlock)};
  }

  // Which keys a vector sees, and where its query is.
  void prepare(std::uint32_t i, std::uint32_t vector) noexcept {
    const PlanSequence& sequence = *head_.sequence;
    const std::uint64_t query_token = vector / p_.group;
    const std::uint64_t query_head = head_.head * p_.group + vector % p_.group;
    const std::uint64_t heads = std::uint64_t{p_.kv_heads} * p_.group;
    const std::uint64_t index = (sequence.first_query_token + query_token) * heads + query_head;
    query_[i] = queries_ + query_header(static_cast<std::uint32_t>(heads)) + index * k_.stride();
    rotated_[i] = query_[i] + p_.tokens * heads * k_.stride();
    slope_[i] = queries_[query_head];
    logit_scale_[i] = is_plain(i) ? kLog2OfE : 1.0F;
    seen_[i] = {sequence.first_key, sequence.tokens};
    if ((p_.flags & kCausal) != 0) {
      seen_[i].end = seen_[i].end - sequence.query_tokens + query_token + 1;
      const std::uint64_t end = seen_[i].end;
      if (p_.window != 0 && end > p_.window) seen_[i].begin = std::max<std::uint64_t>(seen_[i].begin, end - p_.window);
    }
    position_[i] = std::int64_t{sequence.tokens} - sequence.query_tokens + static_cast<std::int64_t>(query_token);
  }

  bool sees_some(std::uint32_t i) const noexcept { return all_see_all_ || !seen_[i].in(keys_).empty(); }

  // Whether logits are products and nothing else.
  bool is_plain(std::uint32_t i) const noexcept { return p_.soft_cap <= 0 && slope_[i] == 0; }

  float finish(float logit, std::uint32_t i, std::uint64_t key) const noexcept {
    if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
    if (slope_[i] != 0) logit -= slope_[i] * static_cast<float>(position_[i] - static_cast<std::int64_t>(key));
    return logit * kLog2OfE;
  }

  // Products of all vectors with the keys of this key block become logits of what each vector sees.
  void finish_logits() noexcept {
    if (all_see_all_ && all_plain_) return;
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      const KeyRange seen = seen_[i].in(keys_);
      if (seen.empty()) continue;
      std::fill(logits_[i], logits_[i] + (seen.begin - block_), kNoLogit);
      std::fill(logits_[i] + (seen.end - block_), logits_[i] + kKeyBlock, kNoLogit);
      if (is_plain(i)) continue;
      for (std::uint64_t key = seen.begin; key < seen.end; ++key) {
        logits_[i][key - block_] = finish(logits_[i][key - block_], i, key);
      }
    }
  }

  void find_logits() noexcept {
    for (std::uint64_t key = keys_.begin, count = 0; key < keys_.end; key += count) {
      count = std::min(SideRows::kRowsAtOnce - key % SideRows::kRowsAtOnce, keys_.end - key);
      const float* const rows = k_.rows(key, count);
      if (k_.sealed()) find_mean(key);
      for (std::uint64_t j = 0; j < count; ++j) {
        for (std::uint32_t i = 0; i < vectors_; ++i) {
          if (!seen_[i].holds(key + j)) continue;
          const float* const query = k_.sealed() ? rotated_[i] : query_[i];
          const float product = simd_.dot(query, rows + j * k_.stride(), k_.stride()) * k_.token_scale(j);
          logits_[i][key + j - block_] = (product + (k_.with_mean(j) ? mean_dot_[i] : 0.0F)) * logit_scale_[i];
        }
      }
    }
    finish_logits();
  }

  // The dense rows of one side, of this key block and of the next one, which is this one soon.
  struct RowLists {
    const std::byte* rows[2][kKeyBlock];
    SideRows::SequenceHead head_of{};
    KeyRange keys{};
    std::uint32_t now = 0;
  };

  void find_rows(const SideRows& side, RowLists& lists) noexcept {
    lists.now = 1 - lists.now;
    if (lists.head_of != head_ || lists.keys != keys_) side.find_rows(head_, keys_, lists.rows[lists.now]);
    side.find_rows(next_.head_of, next_.keys, lists.rows[1 - lists.now]);
    lists.head_of = next_.head_of;
    lists.keys = next_.keys;
  }

  DenseRows some_rows(const SideRows& side, const RowLists& lists, const KeyRange& keys) const noexcept {
    return {lists.rows[lists.now], lists.rows[1 - lists.now], keys.begin - block_, keys.end - block_, side.dim()};
  }

  void find_logits_of_rows() noexcept {
    find_rows(k_, k_rows_);
    simd_.dense.dot[static_cast<std::size_t>(k_.dtype())](some_rows(k_, k_rows_, keys_),
                                                          {packed_, logits_[0], logit_scale_, vectors_});
    finish_logits();
  }

  // Values that a vector does not see may be NaN, and must not meet its weight of zero.
  void add_values_of_rows() noexcept {
    find_rows(v_, v_rows_);
    const auto add = simd_.dense.add[static_cast<std::size_t>(v_.dtype())];
    const KeyRange first = seen_[0].in(keys_);
    const bool all_alike =
        std::all_of(seen_ + 1, seen_ + vectors_, [&](const KeyRange& seen) { return seen.in(keys_) == first; });
    if (all_alike && !first.empty()) {
      add(some_rows(v_, v_rows_, first), {logits_[0], output_, vectors_});
      return;
    }
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      const KeyRange seen = seen_[i].in(keys_);
      if (!seen.empty()) add(some_rows(v_, v_rows_, seen), {logits_[i], output_ + i, 1});
    }
  }

  // Rotated queries as bytes, or as two with a sign each. What vectors there are beyond them is nothing.
  void quantize_queries() noexcept {
    const std::uint32_t terms = terms_of(k_.bits());
    if (k_work_.vectors > vectors_ * terms) std::fill_n(query_bytes_, k_work_.vectors * k_.dim(), std::byte{0});
    std::fill(starts_ + std::size_t{vectors_} * terms, starts_ + k_work_.vectors, 0);
    std::fill(query_scale_ + vectors_, query_scale_ + k_work_.queries, 0.0F);
    const float most = terms == 2 ? 32512.0F : 127.0F;  // 127 * 256: what is left is a byte from -128 to 127
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      const VectorBlock block = block_of(i * terms, k_work_.vectors);
      std::byte* const quads =
          query_bytes_ + std::size_t{block.first} * k_.dim() + std::size_t{4} * (i * terms - block.first);
      const float largest = simd_.largest_magnitude(rotated_[i], k_.dim());
      const bool finite = std::isfinite(largest);
      query_scale_[i] =
          finite ? largest / most * logit_scale_[i] * SideRows::kLevelScale : std::numeric_limits<float>::quiet_NaN();
      const float byte_scale = largest > kLeastInBytes && finite ? most / largest : 0.0F;
      const QuerySums sums = simd_.tile.quantize({finite ? rotated_[i] : kZeros, k_.dim(), byte_scale, quads,
                                                  terms == 2 ? quads + 4 : nullptr, std::uint64_t{4} * block.size});
      starts_[std::size_t{i} * terms] = -128 * sums.high;
      if (terms == 2) starts_[std::size_t{i} * terms + 1] = -128 * sums.low;
    }
  }

  // How the tiles of one side are multiplied: as they are, or each decoded before.
  struct TileWork {
    std::uint32_t bits = 0, vectors = 0;  // some of which may be nothing
    std::uint32_t queries = 0;            // what vectors of one or two terms are
    bool decodes = false;
  };

  // The levels of a single block of vectors need not be written down, nor do those that are codes but for a sign.
  template <class Kernels>
  TileWork work_of(const SideRows& side, const Kernels& kernels) const noexcept {
    const std::uint32_t terms = terms_of(side.bits());
    const std::uint32_t vectors = vectors_ * terms;
    const bool whole_groups = side.dim() / 4 % group_cells(side.bits()) == 0;
    const bool has_kernels = kernels[side.bits()].back() != nullptr;
    if (!has_kernels || !whole_groups || (vectors > 8 && side.bits() != 8)) {
      return {terms == 2 ? kDecodedTwice : kDecoded, vectors, vectors_, true};
    }
    const std::uint32_t padded = vectors > 8 ? vectors : std::bit_ceil(vectors);
    return {side.bits(), padded, padded / terms, false};
  }

  // Calls `call` with tiles, the first one's number, a kernel and the first vector of its block.
  template <class Kernels, class Decode, class Call>
  void for_each_block(const TileWork& work, const Tiles& tiles, const Kernels& kernels, const Decode& decode,
                      const Call& call) noexcept {
    const auto call_blocks = [&](const Tiles& some, std::uint64_t nth) {
      for (std::uint32_t first = 0; first < work.vectors;) {
        const std::uint32_t size = block_of(first, work.vectors).size;
        call(some, nth, kernels[work.bits][static_cast<std::size_t>(std::countr_zero(size))], first);
        first += size;
      }
    };
    if (!work.decodes) {
      call_blocks(tiles, 0);
      return;
    }
    Tiles one = tiles;
    one.count = 1;
    for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
      decode(tiles, tiles.at[nth], levels_);
      one.at[0] = {.low = levels_, .high = levels_, .scales = tiles.at[nth].scales, .prefetches = {}};
      call_blocks(one, nth);
    }
  }

  void find_logits_of_tiles() noexcept {
    const std::uint64_t first_tile = core::round_down(keys_.begin, kTileTokens);
    k_.find_tiles(keys_, next_.head_of, next_.keys, tiles_);
    const std::uint32_t queries = k_work_.queries;
    float means[kBlockTiles * kCpuVectors];
    for (std::uint64_t nth = 0; nth < tiles_.count; ++nth) {
      find_mean(first_tile + nth * kTileTokens);
      for (std::uint32_t i = 0; i < queries; ++i)
        means[nth * queries + i] = i < vectors_ ? mean_dot_[i] * logit_scale_[i] : 0;
    }
    for_each_block(k_work_, tiles_, simd_.tile.dot_keys, simd_.tile.decode_keys[k_.bits()],
                   [&](const Tiles& some, std::uint64_t nth, DotKeys dot, std::uint32_t first) {
                     float* const logits = logits_[0] + (first_tile - block_) + nth * kTileTokens;
                     dot(some, {query_bytes_, starts_, query_scale_, means + nth * queries, queries, logits}, first);
                   });
    finish_logits();
  }

  // Logits become weights times the values' scales, in bytes.
  void weigh_tiles() noexcept {
    const std::uint32_t terms = terms_of(v_.bits());
    v_.find_tiles(keys_, next_.head_of, next_.keys, tiles_);
    const std::uint64_t first_tile = core::round_down(keys_.begin, kTileTokens) - block_;
    for (std::uint64_t nth = 0; nth < tiles_.count; ++nth) {
      simd_.tile.read_scales(tiles_.at[nth].scales, SideRows::kLevelScale,
                             value_scales_ + first_tile + nth * kTileTokens);
    }
    const std::uint64_t tile_stride = std::uint64_t{v_work_.vectors} * kTileTokens;
    PrefetchAddresses prefetches = tiles_.at[0].prefetches;
    for (std::uint32_t i = 0; i < v_work_.queries; ++i) {
      std::byte* const bytes = weight_bytes_ + std::size_t{i} * terms * kTileTokens;
      alignas(16) float weight_scales[kBlockTiles] = {};
      if (i < vectors_ && sees_some(i)) {
        simd_.tile.weigh[terms - 1]({logits_[i], max_logit_[i], exp_sum_[i], value_scales_, bytes, bytes + kTileTokens,
                                     tile_stride, prefetches},
                                    weight_scales);
        constexpr std::uint64_t kPrefetched = std::uint64_t{kWeighPrefetchLines} * kLineBytes;
        if ((i + 2) * kPrefetched <= v_.tile_size()) {
          for (std::uintptr_t& address : prefetches) address += kPrefetched;
        }
      } else {
        for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) {
          std::memset(bytes + nth * tile_stride, 0, std::size_t{terms} * kTileTokens);
        }
      }
      for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth)
        weight_scales_[nth * v_work_.queries + i] = weight_scales[nth];
    }
  }

  void add_values_of_tiles() noexcept {
    const std::uint64_t first_tile = (core::round_down(keys_.begin, kTileTokens) - block_) / kTileTokens;
    for_each_block(v_work_, tiles_, simd_.tile.add_values, simd_.tile.decode_values[v_.bits()],
                   [&](const Tiles& some, std::uint64_t nth, AddValues add, std::uint32_t first) {
                     const std::uint64_t tile = first_tile + nth;
                     add(some,
                         {weight_bytes_ + tile * v_work_.vectors * kTileTokens, weight_scales_ + tile * v_work_.queries,
                          v_work_.vectors, outputs_, v_.stride()},
                         first);
                   });
  }

  // What queries make of the mean of `key`'s page.
  void find_mean(std::uint64_t key) noexcept {
    if (k_.sealed_page(key) == mean_page_) return;
    mean_page_ = k_.sealed_page(key);
    const std::byte* const mean = k_.mean_of(key);
    if (mean == nullptr) {
      std::fill_n(mean_dot_, vectors_, 0.0F);
      return;
    }
    for (std::uint32_t first = 0; first < vectors_; first += 4) {
      const float* rows[4];
      for (std::uint32_t j = 0; j < 4; ++j) rows[j] = query_[std::min(first + j, vectors_ - 1)];
      simd_.tile.dot_mean(rows, mean, k_.dim(), mean_dot_ + first);
    }
  }

  // What was added before is weighed anew, by the largest logits so far. NaN is none, but stays in the sums.
  void raise_max_logits() noexcept {
    for (std::uint32_t first = 0; first < vectors_; first += 4) {
      const float* rows[4];
      float max_logits[4];
      for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t i = std::min(first + j, vectors_ - 1);
        rows[j] = sees_some(i) ? logits_[i] : kNoLogitsOfBlock.data();
        max_logits[j] = max_logit_[i];
      }
      simd_.max_of_four(rows, kKeyBlock, max_logits);
      for (std::uint32_t i = first; i < std::min(first + 4, vectors_); ++i) {
        const float max_logit = max_logits[i - first];
        if (max_logit == max_logit_[i]) continue;
        const float old_scale = std::exp2(max_logit_[i] - max_logit);
        max_logit_[i] = max_logit;
        simd_.scale(exp_sum_[i], old_scale, kPadFloats);
        simd_.scale(output_[i], old_scale, v_.stride());
      }
    }
  }

  // Logits of this key block become weights.
  void weigh() noexcept {
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      if (sees_some(i)) simd_.exponentiate(logits_[i], kKeyBlock, max_logit_[i], exp_sum_[i]);
    }
  }

  void add_values() noexcept {
    for (std::uint64_t key = keys_.begin, count = 0; key < keys_.end; key += count) {
      count = std::min(SideRows::kRowsAtOnce - key % SideRows::kRowsAtOnce, keys_.end - key);
      const float* const rows = v_.rows(key, count);
      for (std::uint32_t i = 0; i < vectors_; ++i) {
        for (std::uint64_t j = 0; j < count; ++j) {
          if (!seen_[i].holds(key + j)) continue;
          simd_.add_scaled(output_[i], rows + j * v_.stride(), logits_[i][key + j - block_] * v_.token_scale(j),
                           v_.stride());
        }
      }
    }
  }

  static constexpr float kZeros[kMaxAttendDim] = {};
  static constexpr auto kNoLogitsOfBlock = [] {
    std::array<float, kKeyBlock> none{};
    none.fill(kNoLogit);
    return none;
  }();

  const AttendSplitParams& p_;
  const PlanReader plan_;
  const float* const queries_;
  float* const partials_;
  const AttendSimd& simd_;
  SideRows k_, v_;
  SideRows::SequenceHead head_{};
  WorkItem after_, next_;  // the next work item's, and the next key block's
  std::uint32_t vectors_ = 0;
  std::uint64_t block_ = 0;  // its first key, seen or not
  KeyRange keys_{};          // of the key block
  KeyRange seen_by_all_{};
  bool all_plain_ = false, all_see_all_ = false;
  std::uint64_t mean_page_ = kNever;
  const float* query_[kCpuVectors];
  const float* rotated_[kCpuVectors];
  float* output_[kCpuVectors];
  float slope_[kCpuVectors];
  float logit_scale_[kCpuVectors];  // products times it are logits, or go into finish()
  float mean_dot_[core::round_up(kCpuVectors, 4U)];
  std::int64_t position_[kCpuVectors];
  KeyRange seen_[kCpuVectors];
  float max_logit_[kCpuVectors];                        // the largest logit so far
  alignas(64) float exp_sum_[kCpuVectors][kPadFloats];  // of weights
  alignas(64) float logits_[kCpuVectors][kKeyBlock];
  alignas(64) float outputs_[kCpuVectors * kMaxAttendDim];

  // Of dense rows.
  alignas(64) float packed_[kCpuVectors * kMaxAttendDim];
  RowLists k_rows_, v_rows_;

  // Of sealed tiles.
  TileWork k_work_, v_work_;
  Tiles tiles_{};
  float query_scale_[kCpuVectors];
  std::int32_t starts_[2 * kCpuVectors];
  alignas(64) float value_scales_[kKeyBlock] = {};
  float weight_scales_[kCpuVectors * kBlockTiles];
  alignas(64) std::byte weight_bytes_[2 * kCpuVectors * kKeyBlock];
  alignas(64) std::byte query_bytes_[2 * kCpuVectors * kMaxAttendDim];
  alignas(64) std::byte levels_[kTileTokens * kMaxAttendDim];
};

}  // namespace

void attend_split_cpu(const runtime::CpuCall& call) noexcept {
  auto& kernel = call.emplace<SplitKernel>(call, attend_simd(core::best_isa()));
  for (std::uint64_t item = call.first_item; item < call.last_item; ++item) {
    kernel.run(item, std::min(item + 1, call.last_item - 1));
  }
}

}  // namespace rota::ops
