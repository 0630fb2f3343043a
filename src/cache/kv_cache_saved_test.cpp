#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/crc32c.h"
#include "harness/kv_cache_saved.h"
#include "harness/saved_sample.h"
#include "rota/rota.h"

// Sequences as bytes: what is in them, what is refused, and what others see meanwhile.

namespace rota::test {
namespace {

constexpr std::size_t kHeaderSizeAt = 16, kGroupAt = 64, kKeysAt = kGroupAt + 48;

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T number = 0;
  std::memcpy(&number, &bytes[at], sizeof(number));
  return number;
}

template <class T>
void put(Bytes& bytes, std::size_t at, T number) {
  std::memcpy(&bytes[at], &number, sizeof(number));
}

// After a change of the header.
void sum_again(Bytes& bytes) {
  const auto size = static_cast<std::size_t>(number_at<std::uint64_t>(bytes, kHeaderSizeAt));
  put(bytes, size - 8, core::crc32c(std::span(bytes).first(size - 8)));
}

// By docs/saved-sequences.md, not by the code.
TEST_F(KvCacheSaved, HeadersAreWhatTheDocumentSays) {
  const Sequence sequence = sequence_of(cache, 150);
  const std::vector<KvNote> notes{{64, Bytes(5)}, {150, Bytes(3)}};
  const Bytes bytes = saved_bytes(cache, sequence, {.notes = notes}).value();
  const auto u32 = [&](std::size_t at) { return number_at<std::uint32_t>(bytes, at); };
  const auto u64 = [&](std::size_t at) { return number_at<std::uint64_t>(bytes, at); };
  EXPECT_EQ(std::memcmp(bytes.data(), "ROTA-SEQ", 8), 0);
  EXPECT_EQ(u32(8), 0x01020304U);
  EXPECT_EQ(u32(12), 1U);
  constexpr std::size_t kHeader = 64 + 48 + 2 * 64 + 8 + 2 * 16 + 8;
  ASSERT_EQ(u64(16), kHeader);
  EXPECT_EQ(u64(24), 0U);
  EXPECT_EQ(u64(32), 150U);
  EXPECT_EQ(u32(40), 1U);
  EXPECT_EQ(u32(44), 2U);
  EXPECT_EQ(u64(48), bytes.size());
  EXPECT_EQ(u64(56), 0U);
  const std::vector<std::uint32_t> shape{1, 1, 16, 16, 64, 1};
  for (std::size_t i = 0; i < shape.size(); ++i) EXPECT_EQ(u32(kGroupAt + 4 * i), shape[i]) << i;
  EXPECT_EQ(u64(kGroupAt + 24), 30U);
  EXPECT_EQ(u64(kGroupAt + 32), group().sinks);
  EXPECT_EQ(u64(kGroupAt + 40), 0U);
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const std::size_t at = kKeysAt + (side == KvSide::keys ? 0 : 64);
    EXPECT_EQ(u32(at), 0xffffffffU);
    EXPECT_EQ(u32(at + 4), 0U);
    EXPECT_EQ(u64(at + 8), 0U);
    EXPECT_EQ(u64(at + 16), 1U) << "150 - 30 tokens are older than the tail: one page of 64";
    EXPECT_EQ(u64(at + 24), 3U);
    const auto description = describe({turbo(4), side, 16, 64});
    EXPECT_EQ(std::memcmp(&bytes[at + 32], description.data(), description.size()), 0);
  }
  EXPECT_EQ(u32(kKeysAt + 128), 3U) << "the layer";
  EXPECT_EQ(u64(kKeysAt + 136), 64U);
  EXPECT_EQ(u64(kKeysAt + 144), 5U);
  EXPECT_EQ(u32(kHeader - 8), core::crc32c(std::span(bytes).first(kHeader - 8)));
  EXPECT_EQ(u32(kHeader - 4), 0U);
}

// Of each part the size, its checksum and its number.
TEST_F(KvCacheSaved, PartsAreWhereTheDocumentSays) {
  const Sequence sequence = sequence_of(cache, 150);
  const std::vector<KvNote> notes{{64, Bytes(5)}, {150, Bytes(3)}};
  const Bytes bytes = saved_bytes(cache, sequence, {.notes = notes}).value();
  const auto sealed = [](KvSide side) { return page_bytes({turbo(4), side, 16, 64}); };
  constexpr std::uint64_t kToken = 16 * 2;
  const std::uint64_t sinks = group().sinks * kToken;
  const std::vector<std::uint64_t> sizes{
      sinks,       sealed(KvSide::keys), sinks, sealed(KvSide::values), 5, 64 * kToken, 64 * kToken,
      22 * kToken, 22 * kToken,          3};
  auto at = static_cast<std::size_t>(number_at<std::uint64_t>(bytes, kHeaderSizeAt));
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    ASSERT_LE(at + sizes[i] + 8, bytes.size());
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + sizes[i]), core::crc32c(std::span(bytes).subspan(at, sizes[i])));
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + sizes[i] + 4), i);
    at += sizes[i] + 8;
  }
  EXPECT_EQ(at, bytes.size());
}

TEST_F(KvCacheSaved, EveryBeginningOfTheBytesIsRefused) {
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 150)).value();
  ASSERT_OK(cache.load(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes beginning(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    refusal(beginning);
    EXPECT_FALSE(verify_saved(source_of(beginning)).ok()) << size;
    if (HasFailure()) FAIL() << size << " of " << bytes.size() << " bytes";
  }
}

TEST_F(KvCacheSaved, EveryFlippedBitIsFound) {
  Bytes bytes = saved_bytes(cache, sequence_of(cache, 150)).value();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (unsigned bit = i % 8; bit < 8; bit += 5) {
      const std::byte mask{static_cast<unsigned char>(1U << bit)};
      bytes[i] ^= mask;
      const auto loaded = cache.load(bytes);
      EXPECT_FALSE(loaded.ok()) << "bit " << bit << " of byte " << i;
      EXPECT_FALSE(verify_saved(source_of(bytes)).ok()) << "bit " << bit << " of byte " << i;
      bytes[i] ^= mask;
      if (HasFailure()) return;
    }
  }
  ASSERT_OK(cache.load(bytes));
}

TEST_F(KvCacheSaved, EachFaultHasASentenceOfItsOwn) {
  const Bytes sound =
      saved_bytes(cache, sequence_of(cache, 150), {.notes = std::vector<KvNote>{{64, Bytes(5)}}}).value();
  const auto header = static_cast<std::size_t>(number_at<std::uint64_t>(sound, kHeaderSizeAt));
  struct Fault {
    std::string_view text;
    std::function<void(Bytes&)> make;
    bool sum = true;
    Errc code = Errc::io;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::vector<Fault> faults{
      {"does not begin with ROTA-SEQ", [](Bytes& b) { b[0] = std::byte{'X'}; }},
      {"big-endian order", [](Bytes& b) { put(b, 8, 0x04030201U); }},
      {"a byte order of 0x00000000", [](Bytes& b) { put(b, 8, 0U); }},
      {"version 2; this build reads version 1", [](Bytes& b) { put(b, 12, 2U); }, true, Errc::unsupported},
      {"a header of 12 bytes", [](Bytes& b) { put(b, 16, std::uint64_t{12}); }, false},
      {"no whole header", [](Bytes& b) { put(b, 16, std::uint64_t{1} << 40); }, false},
      {"the header's checksum is wrong", [](Bytes& b) { put(b, 24, std::uint64_t{1}); }, false},
      {"positions 151 to 150", [](Bytes& b) { put(b, 24, std::uint64_t{151}); }},
      {"positions 0 to 18446744073709551615", [](Bytes& b) { put(b, 32, kHuge); }},
      {"not as long as its groups and notes", [](Bytes& b) { put(b, 40, 2U); }},
      {"1025 groups", [](Bytes& b) { put(b, 40, 1025U); }},
      {"it says 7 bytes", [](Bytes& b) { put(b, 48, std::uint64_t{7}); }},
      {"to be zero", [](Bytes& b) { put(b, 56, std::uint64_t{7}); }},
      {"groups that no cache has", [](Bytes& b) { put(b, kGroupAt + 4, 0U); }},
      {"groups that no cache has: KvCacheSpec: groups[0].tail", [](Bytes& b) { put(b, kGroupAt + 24, kHuge); }},
      {"not that of their group", [](Bytes& b) { put(b, kGroupAt + 8, 32U); }},
      {"elements of type 9", [](Bytes& b) { put(b, kGroupAt + 20, 9U); }},
      {"have pages 2 to 3, sealed up to 1", [](Bytes& b) { put(b, kKeysAt + 8, std::uint64_t{2}); }},
      {"have pages 0 to 3, sealed up to 3", [](Bytes& b) { put(b, kKeysAt + 16, std::uint64_t{3}); }},
      {"have pages 0 to 2", [](Bytes& b) { put(b, kKeysAt + 24, std::uint64_t{2}); }},
      {"page description: version 9", [](Bytes& b) { put(b, kKeysAt + 36, std::uint16_t{9}); }, true,
       Errc::unsupported},
      {"a note at position 151", [](Bytes& b) { put(b, kKeysAt + 136, std::uint64_t{151}); }},
      {"more than 2^60 bytes", [](Bytes& b) { put(b, kKeysAt + 144, kHuge); }},
      {"the sinks of the keys of groups[0]: the checksum", [&](Bytes& b) { b[header] ^= std::byte{1}; }},
  };
  std::set<std::string> sentences;
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.text);
    Bytes bytes = sound;
    fault.make(bytes);
    if (fault.sum) sum_again(bytes);
    const std::string sentence = refusal(bytes, {}, fault.code);
    EXPECT_NE(sentence.find(fault.text), std::string::npos) << sentence;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
  }
  Bytes cut = sound;
  cut.pop_back();
  EXPECT_NE(refusal(cut).find("the rest was cut off"), std::string::npos);
  // Two parts with the same bytes that changed places: of notes, which are zeros here.
  Bytes swapped =
      saved_bytes(cache, sequence_of(cache, 0), {.notes = std::vector<KvNote>{{0, Bytes(4)}, {0, Bytes(4)}}}).value();
  std::swap_ranges(swapped.end() - 24, swapped.end() - 12, swapped.end() - 12);
  EXPECT_NE(refusal(swapped).find("part 1 is where part 0 belongs"), std::string::npos) << refusal(swapped);
}

TEST_F(KvCacheSaved, AnotherModelIsNamedByWhatDiffers) {
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 150)).value();
  struct Other {
    std::string_view field;
    std::function<void(KvGroup&)> change;
  };
  Turbo seeded = turbo(4);
  seeded.seed = 1;
  const std::vector<Other> others{
      {"layers.size() is 1; wanted the cache's 2", [](KvGroup& g) { g.layers = {3, 4}; }},
      {"layers is a list of other layers", [](KvGroup& g) { g.layers = {5}; }},
      {"kv_heads is 1; wanted the cache's 2", [](KvGroup& g) { g.kv_heads = 2; }},
      {"head_dim is 16; wanted the cache's 32", [](KvGroup& g) { g.head_dim = 32, g.value_dim = 16; }},
      {"value_dim is 16; wanted the cache's 32", [](KvGroup& g) { g.value_dim = 32; }},
      {"page is 64; wanted the cache's 128", [](KvGroup& g) { g.page = 128; }},
      {"k is turbo4", [](KvGroup& g) { g.k = turbo(3); }},
      {"v is turbo4", [](KvGroup& g) { g.v = DType::f16; }},
      {"seed 0x726f7461); wanted the cache's turbo4 (scale rule 2, with mean, seed 0x1)",
       [&](KvGroup& g) { g.k = seeded; }},
      {"dense is f16; wanted the cache's f32", [](KvGroup& g) { g.dense = DType::f32; }},
      {"sinks is 4; wanted the cache's 0", [](KvGroup& g) { g.sinks = 0; }},
      {"window is 0; wanted the cache's 200", [](KvGroup& g) { g.window = 200; }},
      {"keep_sinks is 0; wanted the cache's 1", [](KvGroup& g) { g.window = 200, g.keep_sinks = true; }},
  };
  for (const Other& other : others) {
    KvGroup changed = group();
    other.change(changed);
    cache = make(spec(changed));
    const std::string sentence = refusal(bytes, {}, Errc::invalid_argument);
    EXPECT_NE(sentence.find(other.field), std::string::npos) << sentence;
  }
  KvCacheSpec two = spec(group());
  two.groups.push_back(small_group());
  two.groups.back().layers = {9};
  cache = make(two);
  EXPECT_NE(refusal(bytes, {}, Errc::invalid_argument).find("the number of groups is 1"), std::string::npos);
  KvGroup other_tail = group();
  other_tail.tail = 100;
  cache = make(spec(other_tail));
  EXPECT_OK(cache.load(bytes));
}

TEST_F(KvCacheSaved, BadCallsAreRefused) {
  const Sequence sequence = sequence_of(cache, 150);
  const auto save_refusal = [&](const KvSaveOptions& options) {
    const auto saved = saved_bytes(cache, sequence, options);
    EXPECT_FALSE(saved.ok());
    return saved ? "" : saved.error().message;
  };
  const auto expect = [](const std::string& message, std::string_view text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect(save_refusal({.begin = 10}), "options.begin is 10; wanted a multiple of the 64 tokens of a page");
  expect(save_refusal({.begin = 192}), "options.begin is 192; wanted at most 150");
  expect(save_refusal({.end = 151}), "options.end is 151; wanted at most the 150 tokens");
  expect(save_refusal({.end = 100}), "options.end is 100; wanted a multiple of the 64");
  expect(save_refusal({.end = 128}), "options.end is 128; wanted at most 64: later pages of the keys");
  expect(save_refusal({.notes = std::vector<KvNote>{{65}}}), "options.notes[0].position is 65; wanted a multiple");
  expect(save_refusal({.notes = std::vector<KvNote>{{64}, {0}}}), "options.notes[1].position is 0; wanted 64 to 150");
  expect(save_refusal({.notes = std::vector<KvNote>{{151}}}), "options.notes[0].position is 151");

  const Bytes whole = saved_bytes(cache, sequence).value();
  const Bytes first = saved_bytes(cache, sequence, {.end = 64}).value();
  const Bytes rest = saved_bytes(cache, sequence, {.begin = 64}).value();
  const auto load_refusal = [&](const Bytes& bytes, const KvLoadOptions& options) {
    return refusal(bytes, options, Errc::invalid_argument);
  };
  expect(load_refusal(whole, {.tokens = 100}), "options.tokens is 100; wanted a multiple");
  expect(load_refusal(whole, {.tokens = 192}), "options.tokens is 192; wanted 0 to 150");
  expect(load_refusal(rest, {}), "options.onto is none; wanted a sequence of 64 tokens");
  expect(load_refusal(rest, {.onto = sequence}), "options.onto is 150 tokens long; wanted 64");
  expect(load_refusal(rest, {.onto = Sequence{}}), "of another cache");
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(saved_bytes(cache, sequence).error().code, Errc::invalid_argument) << "closed";
}

// Sealed pages cannot follow dense ones.
TEST_F(KvCacheSaved, SealedPagesFollowSealedPages) {
  const Sequence sequence = sequence_of(cache, 300);
  const Bytes rest = saved_bytes(cache, sequence, {.begin = 64, .end = 192}).value();
  const Sequence computed = sequence_of(cache, 64);
  EXPECT_NE(refusal(rest, {.onto = computed}, Errc::invalid_argument).find("dense at its end"), std::string::npos);
  const Bytes first = saved_bytes(cache, sequence, {.end = 64}).value();
  const Sequence loaded = cache.load(first)->sequence;
  EXPECT_EQ(cache.load(rest, {.onto = loaded})->length, 192U);
  EXPECT_EQ(saved_bytes(cache, loaded, {.begin = 64, .end = 192}).value(), rest);
}

TEST_F(KvCacheSaved, ErrorsOfSinksAndSourcesComeBack) {
  const Sequence sequence = sequence_of(cache, 150);
  const KvCounters before = cache.counters();
  for (int calls = 0; calls < 5; ++calls) {
    int left = calls;
    const Status status = cache.save(sequence, [&](std::span<const std::byte>) -> Status {
      return left-- > 0 ? Status() : Status(Error{Errc::io, "the disk is full"});
    });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "the disk is full");
    expect_unused_but_for(before);
  }
  const Bytes bytes = saved_bytes(cache, sequence).value();
  const auto thrown = cache.load([](std::span<std::byte>) -> Status { throw std::runtime_error("not an Error"); });
  EXPECT_EQ(thrown.error().code, Errc::internal);
  std::size_t at = 0;
  const auto failing = [&](std::span<std::byte> to) -> Status {
    if (at + to.size() > bytes.size() - 100) return Error{Errc::io, "the line is dead"};
    std::memcpy(to.data(), &bytes[at], to.size());
    at += to.size();
    return {};
  };
  const auto loaded = cache.load(failing);
  EXPECT_EQ(loaded.error().message, "saved sequence: in page 2 of the values of groups[0]: the line is dead");
  expect_unused_but_for(before);
}

// Files outlive versions of the library: this one was written by the first that could.
TEST_F(KvCacheSaved, TheSampleIsReadAndWrittenAsEver) {
  const std::string path = ROTA_SOURCE_FOLDER "/tests/saved/two_groups.rota";
  cache = make(saved_sample_spec());
  const Sequence sequence = make_saved_sample(device, cache);
  const Bytes found = saved_bytes(cache, sequence, {.notes = saved_sample_notes()}).value();
  if (std::getenv("ROTA_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(found.data()), std::ssize(found));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto kept = std::as_bytes(std::span(text));
  EXPECT_TRUE(std::ranges::equal(found, kept)) << "a new version of the format leaves the old sample as it is";
  const auto loaded = cache.load(kept);
  ASSERT_OK(loaded);
  EXPECT_EQ(loaded->notes.front().bytes, saved_sample_notes().front().bytes);
  EXPECT_EQ(saved_bytes(cache, loaded->sequence, {.notes = loaded->notes}).value(), found);
}

// A size that the bytes only claim costs no memory.
TEST_F(KvCacheSaved, NoteSizesAreNotBelieved) {
  Bytes bytes = saved_bytes(cache, sequence_of(cache, 0), {.notes = std::vector<KvNote>{{0, Bytes(4)}}}).value();
  const auto header = static_cast<std::size_t>(number_at<std::uint64_t>(bytes, kHeaderSizeAt));
  constexpr std::uint64_t kClaim = std::uint64_t{1} << 40;
  put(bytes, header - 16, kClaim);
  put(bytes, 48, std::uint64_t{header} + kClaim + 8);
  sum_again(bytes);
  EXPECT_FALSE(cache.load(source_of(bytes)).ok());
  EXPECT_FALSE(cache.load(bytes).ok());
  EXPECT_FALSE(verify_saved(source_of(bytes)).ok());
}

}  // namespace
}  // namespace rota::test
