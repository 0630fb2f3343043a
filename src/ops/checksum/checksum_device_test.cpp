#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "harness/guarded.h"
#include "harness/on_device.h"

namespace rota::test {
namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);

// The definition.
std::uint32_t sum_of(std::span<const std::uint32_t> words) {
  std::uint64_t sum = 0;
  for (const std::uint32_t word : words) sum = (sum + word) % (std::uint64_t{1} << 32);
  return static_cast<std::uint32_t>(sum);
}

class ChecksumOnDevice : public OnDevice {
 protected:
  std::vector<std::uint32_t> random_words(std::uint64_t count) {
    std::vector<std::uint32_t> words(count);
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
    return words;
  }

  // Sums that begin as 0xffffffff, between guards.
  std::vector<std::uint32_t> sums_of(const std::vector<WordRange>& ranges) {
    const Guarded sums(device, ranges.size(), DType::f32, 5);
    EXPECT_OK(run_on(device, [&](Encoder& encoder) {
      checksum(encoder, {.of = ranges, .sums = sums.buffer, .sums_offset_bytes = sums.offset * kWordBytes});
    }));
    EXPECT_TRUE(sums.guards_intact());
    const std::vector<std::byte> bytes = sums.read();
    std::vector<std::uint32_t> found(ranges.size());
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(found)).begin());
    return found;
  }

  std::mt19937 random{20261116};
};

TEST_F(ChecksumOnDevice, AddsUpRangesOfAnySizeAndOffset) {
  for (const std::uint64_t offset : {0U, 1U, 2U, 3U, 4U, 63U, 64U, 65U}) {
    for (const std::uint64_t count :
         {1U, 2U, 3U, 4U, 5U, 7U, 8U, 15U, 16U, 17U, 255U, 1023U, 1024U, 1029U, 8191U, 8192U, 8193U, 16383U, 70'001U}) {
      SCOPED_TRACE(testing::Message() << offset << ", " << count);
      const std::vector<std::uint32_t> words = random_words(count);
      Guarded memory(device, count, DType::f32, offset);
      memory.write(std::as_bytes(std::span(words)));
      EXPECT_EQ(sums_of({{memory.buffer, offset * kWordBytes, count * kWordBytes}}).front(), sum_of(words));
      EXPECT_TRUE(memory.guards_intact());
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_F(ChecksumOnDevice, WrapsAround) {
  Buffer memory = device.allocate(40'000 * kWordBytes).value();
  ASSERT_OK(memory.write(std::vector<std::byte>(memory.size_bytes(), std::byte{0xff})));
  EXPECT_EQ(sums_of({{memory, 0, memory.size_bytes()}}).front(), 0U - 40'000U);
}

TEST_F(ChecksumOnDevice, SeesEveryWordOnce) {
  constexpr std::uint64_t kWords = 603;
  Buffer memory = device.allocate(kWords * kWordBytes).value();
  const std::vector<std::uint32_t> words = random_words(kWords);
  ASSERT_OK(memory.write(std::as_bytes(std::span(words))));
  std::vector<WordRange> ranges;
  for (std::uint64_t first = 0; first < kWords; ++first) {
    ranges.push_back({memory, first * kWordBytes, (kWords - first) * kWordBytes});
  }
  const std::vector<std::uint32_t> sums = sums_of(ranges);
  for (std::uint64_t first = 0; first < kWords; ++first) {
    ASSERT_EQ(sums[first], sum_of(std::span(words).subspan(first))) << first;
  }
}

TEST_F(ChecksumOnDevice, ServesSeveralBuffersEmptyRangesAndNone) {
  const std::vector<std::uint32_t> words = random_words(5000);
  const auto all = std::as_bytes(std::span(words));
  Buffer first = device.allocate(all.size()).value();
  Buffer second = device.allocate(all.size() / 2).value();
  ASSERT_OK(first.write(all));
  ASSERT_OK(second.write(all.first(all.size() / 2)));
  const std::span<const std::uint32_t> span(words);
  EXPECT_EQ(sums_of({{first, 0, all.size()},
                     {second, 8, 400},
                     {first, 12, 0},
                     {second, second.size_bytes(), 0},
                     {first, 200, 8000},
                     {first, 0, all.size()}}),
            (std::vector<std::uint32_t>{sum_of(span), sum_of(span.subspan(2, 100)), 0, 0,
                                        sum_of(span.subspan(50, 2000)), sum_of(span)}));
  EXPECT_TRUE(sums_of({}).empty());
}

// Sums of sums, in blocks of their own: validation takes all of a binding for touched.
TEST_F(ChecksumOnDevice, OverwritesAndWaitsForWhatIsWrittenBefore) {
  const std::vector<std::uint32_t> words = random_words(300'000);
  Buffer memory = device.allocate(words.size() * kWordBytes).value();
  ASSERT_OK(memory.write(std::as_bytes(std::span(words))));
  Buffer sums = device.allocate(1024).value();
  const std::vector<WordRange> parts{{memory, 0, 800'000}, {memory, 800'000, 400'000}};
  const WordRange of_sums{sums, 0, 2 * kWordBytes};
  ASSERT_OK(run_on(device, [&](Encoder& encoder) {
    for (const std::uint64_t offset_bytes : {256U, 512U, 256U}) {
      checksum(encoder, {.of = parts, .sums = sums});
      checksum(encoder, {.of = {&of_sums, 1}, .sums = sums, .sums_offset_bytes = offset_bytes});
    }
  }));
  const auto word_at = [&](std::uint64_t offset_bytes) {
    std::uint32_t word = 0;
    sums.read(std::as_writable_bytes(std::span(&word, 1)), offset_bytes).value();
    return word;
  };
  const std::span<const std::uint32_t> span(words);
  EXPECT_EQ(word_at(0), sum_of(span.first(200'000)));
  EXPECT_EQ(word_at(4), sum_of(span.subspan(200'000)));
  EXPECT_EQ(word_at(256), sum_of(span));
  EXPECT_EQ(word_at(512), sum_of(span));
}

// More than one binding of lavapipe can address, and more chunks than there are workgroups.
TEST_F(ChecksumOnDevice, AddsUpMoreThanOneBindingHolds) {
  constexpr std::uint64_t kMost = std::uint64_t{128} << 20;
  const Limits limits = device.info().limits;
  const std::uint64_t bytes = std::min(limits.max_binding_bytes, kMost) + 1028;
  ASSERT_GE(limits.max_buffer_bytes, bytes + 8);
  constexpr std::uint64_t kPeriod = 65'537;
  std::vector<std::uint32_t> words = random_words(kPeriod);
  words.resize(bytes / kWordBytes);
  for (std::uint64_t i = kPeriod; i < words.size(); ++i) words[i] = words[i - kPeriod] + 1;
  Buffer memory = device.allocate(bytes + 8).value();
  ASSERT_OK(memory.write(std::as_bytes(std::span(words)), 4));
  const std::span<const std::uint32_t> span(words);
  EXPECT_EQ(sums_of({{memory, 4, bytes}, {memory, 260, bytes - 1000}}),
            (std::vector<std::uint32_t>{sum_of(span), sum_of(span.subspan(64, span.size() - 250))}));
}

TEST_F(ChecksumOnDevice, IsRefusedAtSubmit) {
  Buffer memory = device.allocate(64).value();
  const WordRange range{memory, 2, 8};
  Encoder encoder = device.encoder();
  checksum(encoder, {.of = {&range, 1}, .sums = memory});
  expect_error(std::move(encoder).submit(), Errc::invalid_argument, {"checksum: of[0].offset_bytes is 2"});
}

}  // namespace
}  // namespace rota::test
