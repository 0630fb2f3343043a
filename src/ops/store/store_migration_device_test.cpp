#include <gtest/gtest.h>

#include "harness/on_device.h"
#include "ops/store/store_reference.h"

// Each of mlx-native's copy functions is one call of `store`. What a function writes is computed here
// from that function's own index formulas; docs/migrating-from-mlx-native.md has the same table.

namespace rota::test {
namespace {

constexpr std::uint64_t kHeads = 3;
constexpr std::uint64_t kDim = 8;

class Migration : public OnDevice {
 protected:
  struct Tensor {
    Buffer buffer;
    DType dtype;
    std::vector<std::byte> bytes;
  };

  Tensor make(DType dtype, std::uint64_t elements) {
    Tensor tensor{device.allocate(elements * info(dtype).bytes).value(), dtype,
                  random_elements(random, dtype, elements)};
    tensor.buffer.write(tensor.bytes).value();
    return tensor;
  }

  // old_call: for each element that the old function writes, cache[to] = src[from].
  static void old_write(Tensor& cache, std::uint64_t to, const Tensor& src, std::uint64_t from) {
    save_bits(cache.bytes, cache.dtype, to,
              convert_bits(load_bits(src.bytes, src.dtype, from), src.dtype, cache.dtype));
  }

  static void expect_same(const Tensor& cache) {
    std::vector<std::byte> stored(cache.bytes.size());
    ASSERT_OK(cache.buffer.read(stored));
    EXPECT_EQ(stored, cache.bytes);
  }

  // kv_cache_copy, kv_cache_copy_f32: rows [n_new, row_size] into [cap, row_size].
  void row_copy(DType dtype, std::uint64_t write_pos, WhenFull when_full) {
    constexpr std::uint64_t kCap = 9;
    constexpr std::uint64_t kNew = 4;
    constexpr std::uint64_t kRow = kHeads * kDim;
    const Tensor src = make(dtype, kNew * kRow);
    Tensor cache = make(dtype, kCap * kRow);
    const StorePair pair{View::token_major(src.buffer, dtype, {.tokens = kNew, .heads = 1, .dim = kRow}),
                         SlotView::token_major(cache.buffer, dtype, {.page_slots = kCap, .heads = 1, .dim = kRow})};
    ASSERT_OK(
        run_store(device, {pair}, {{.tokens = kNew, .position = write_pos, .capacity = kCap, .when_full = when_full}}));
    for (std::uint64_t t = 0; t < kNew * kRow; ++t) {
      const std::uint64_t token = t / kRow;
      const std::uint64_t slot = when_full == WhenFull::wrap ? (write_pos + token) % kCap : write_pos + token;
      old_write(cache, slot * kRow + t % kRow, src, t);
    }
    expect_same(cache);
  }

  // _batch_*: one token [heads, dim] into [heads, cap, dim]; K and V with the dual forms.
  void batch_copy(DType to, std::size_t tensors) {
    constexpr std::uint64_t kCap = 5;
    constexpr std::uint64_t kSeqPos = 3;
    std::vector<Tensor> sources;
    std::vector<Tensor> caches;
    std::vector<StorePair> pairs;
    for (std::size_t i = 0; i < tensors; ++i) {
      sources.push_back(make(DType::f32, kHeads * kDim));
      caches.push_back(make(to, kHeads * kCap * kDim));
      pairs.push_back({View::token_major(sources[i].buffer, DType::f32, {.tokens = 1, .heads = kHeads, .dim = kDim}),
                       SlotView::head_major(caches[i].buffer, to, {.page_slots = kCap, .heads = kHeads, .dim = kDim})});
    }
    ASSERT_OK(run_store(device, pairs, {{.tokens = 1, .position = kSeqPos, .capacity = kCap}}));
    for (std::size_t i = 0; i < tensors; ++i) {
      for (std::uint64_t h = 0; h < kHeads; ++h) {
        for (std::uint64_t e = 0; e < kDim; ++e) {
          old_write(caches[i], h * kCap * kDim + kSeqPos * kDim + e, sources[i], h * kDim + e);
        }
      }
      expect_same(caches[i]);
    }
  }

  // _seq_*: tokens [T, heads, dim] from src_tok_offset on into a ring [heads, cap, dim].
  struct Seq {
    DType from, to;
    std::uint64_t seq_pos_start, n_tokens, src_tok_offset;
    std::size_t tensors = 1;
  };
  void seq_copy(const Seq& call) {
    constexpr std::uint64_t kCap = 6;
    const std::uint64_t source_tokens = call.src_tok_offset + call.n_tokens;
    std::vector<Tensor> sources;
    std::vector<Tensor> caches;
    std::vector<StorePair> pairs;
    for (std::size_t i = 0; i < call.tensors; ++i) {
      sources.push_back(make(call.from, source_tokens * kHeads * kDim));
      caches.push_back(make(call.to, kHeads * kCap * kDim));
      const View all =
          View::token_major(sources[i].buffer, call.from, {.tokens = source_tokens, .heads = kHeads, .dim = kDim});
      pairs.push_back(
          {all.slice(call.src_tok_offset, call.n_tokens),
           SlotView::head_major(caches[i].buffer, call.to, {.page_slots = kCap, .heads = kHeads, .dim = kDim})});
    }
    ASSERT_OK(run_store(device, pairs, {{.tokens = call.n_tokens, .position = call.seq_pos_start, .capacity = kCap}}));
    for (std::size_t i = 0; i < call.tensors; ++i) {
      for (std::uint64_t token = 0; token < call.n_tokens; ++token) {
        const std::uint64_t slot = (call.seq_pos_start + token) % kCap;
        for (std::uint64_t h = 0; h < kHeads; ++h) {
          for (std::uint64_t e = 0; e < kDim; ++e) {
            old_write(caches[i], h * kCap * kDim + slot * kDim + e, sources[i],
                      ((call.src_tok_offset + token) * kHeads + h) * kDim + e);
          }
        }
      }
      expect_same(caches[i]);
    }
  }

  std::mt19937_64 random{7};
};

TEST_F(Migration, KvCacheCopy) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    row_copy(dtype, 3, WhenFull::refuse);
    row_copy(dtype, 7, WhenFull::wrap);
  }
}

TEST_F(Migration, KvCacheCopyF32) {
  row_copy(DType::f32, 5, WhenFull::refuse);
  row_copy(DType::f32, 16, WhenFull::wrap);
}

TEST_F(Migration, KvCacheCopyBatchF32) { batch_copy(DType::f32, 1); }
TEST_F(Migration, KvCacheCopyBatchF32ToF16) { batch_copy(DType::f16, 1); }
TEST_F(Migration, KvCacheCopyBatchF32KvDual) { batch_copy(DType::f32, 2); }
TEST_F(Migration, KvCacheCopyBatchF32ToF16KvDual) { batch_copy(DType::f16, 2); }

TEST_F(Migration, KvCacheCopySeqF32) {
  seq_copy({.from = DType::f32, .to = DType::f32, .seq_pos_start = 4, .n_tokens = 5, .src_tok_offset = 0});
}

TEST_F(Migration, KvCacheCopySeqF32ToF16) {
  // The sliding contract of a long prompt: the newest cap tokens, from an offset into the source.
  seq_copy({.from = DType::f32, .to = DType::f16, .seq_pos_start = 13, .n_tokens = 6, .src_tok_offset = 13});
}

TEST_F(Migration, KvCacheCopySeqBf16) {
  seq_copy({.from = DType::bf16, .to = DType::f32, .seq_pos_start = 2, .n_tokens = 3, .src_tok_offset = 1});
}

TEST_F(Migration, KvCacheCopySeqF32Dual) {
  seq_copy(
      {.from = DType::f32, .to = DType::f32, .seq_pos_start = 4, .n_tokens = 5, .src_tok_offset = 2, .tensors = 2});
}

TEST_F(Migration, KvCacheCopySeqF32ToF16Dual) {
  seq_copy(
      {.from = DType::f32, .to = DType::f16, .seq_pos_start = 9, .n_tokens = 6, .src_tok_offset = 0, .tensors = 2});
}

TEST_F(Migration, KvCacheCopySeqBf16ToBf16HeadMajor) {
  constexpr std::uint64_t kCap = 6;
  constexpr std::uint64_t kSourceLength = 7;
  constexpr std::uint64_t kOffset = 2;
  constexpr std::uint64_t kTokens = 4;
  constexpr std::uint64_t kStart = 4;
  const Tensor src = make(DType::bf16, kHeads * kSourceLength * kDim);
  Tensor cache = make(DType::bf16, kHeads * kCap * kDim);
  const View all = View::head_major(src.buffer, DType::bf16, {.tokens = kSourceLength, .heads = kHeads, .dim = kDim});
  const StorePair pair{
      all.slice(kOffset, kTokens),
      SlotView::head_major(cache.buffer, DType::bf16, {.page_slots = kCap, .heads = kHeads, .dim = kDim})};
  ASSERT_OK(run_store(device, {pair}, {{.tokens = kTokens, .position = kStart, .capacity = kCap}}));
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    for (std::uint64_t h = 0; h < kHeads; ++h) {
      for (std::uint64_t e = 0; e < kDim; ++e) {
        old_write(cache, h * kCap * kDim + (kStart + token) % kCap * kDim + e, src,
                  h * kSourceLength * kDim + (kOffset + token) * kDim + e);
      }
    }
  }
  expect_same(cache);
}

}  // namespace
}  // namespace rota::test
