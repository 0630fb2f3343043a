#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/kv_cache_saved.h"
#include "rota/rota.h"

// Pages that are held now and saved later, bytes that are read from anywhere, and where the parts of them are.

namespace rota::test {
namespace {

Bytes bytes_of(KvSnapshot snapshot) {
  Bytes bytes;
  const Status status = std::move(snapshot).save([&](std::span<const std::byte> more) -> Status {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return {};
  });
  EXPECT_OK(status);
  return bytes;
}

ByteReader reader_of(const Bytes& bytes) {
  return [&bytes](std::uint64_t offset, std::span<std::byte> to) -> Status {
    if (offset + to.size() > bytes.size()) return Error{Errc::io, "beyond the end"};
    std::memcpy(to.data(), bytes.data() + offset, to.size());
    return {};
  };
}

class KvCacheSnapshot : public KvCacheSaved {
 protected:
  // The last step seals what is due after the one before it.
  Sequence sequence_with_sealed_pages() {
    const Sequence sequence = sequence_of(cache, 300);
    EXPECT_OK(extend(cache, {{sequence, 1}}));
    EXPECT_EQ(cache.sealed_length(sequence).value(), 256U);
    return sequence;
  }
};

TEST_F(KvCacheSnapshot, WholePagesThatAreOlderThanTheTailAreSealed) {
  const Sequence sequence = cache.open_sequence().value();
  EXPECT_EQ(cache.sealed_length(sequence).value(), 0U);
  ASSERT_OK(extend(cache, {{sequence, 94}}));  // a page of 64 and a tail of 30: due, and not sealed yet
  EXPECT_EQ(cache.sealed_length(sequence).value(), 0U);
  ASSERT_OK(extend(cache, {{sequence, 1}}));
  EXPECT_EQ(cache.sealed_length(sequence).value(), 64U);
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(cache.sealed_length(sequence).error().code, Errc::invalid_argument);
}

TEST_F(KvCacheSnapshot, DensePagesAreWholeAsSoonAsTheyAreFull) {
  KvGroup dense = group();
  dense.k = dense.v = DType::f16;
  cache = make(spec(dense));
  const Sequence sequence = sequence_of(cache, 130);
  EXPECT_EQ(cache.sealed_length(sequence).value(), 128U);
  EXPECT_EQ(bytes_of(cache.snapshot(sequence, 64, 128).value()),
            saved_bytes(cache, sequence, {.begin = 64, .end = 128}).value());
}

TEST_F(KvCacheSnapshot, ItsBytesAreThoseOfASave) {
  const Sequence sequence = sequence_with_sealed_pages();
  for (const auto& [begin, end] : {std::pair(0, 256), std::pair(64, 192), std::pair(128, 128)}) {
    const KvSaveOptions range{.begin = static_cast<std::uint64_t>(begin), .end = static_cast<std::uint64_t>(end)};
    const Bytes wanted = saved_bytes(cache, sequence, range).value();
    KvSnapshot snapshot = cache.snapshot(sequence, range.begin, *range.end).value();
    EXPECT_EQ(snapshot.saved().bytes, wanted.size());
    EXPECT_EQ(bytes_of(std::move(snapshot)), wanted);
  }
}

TEST_F(KvCacheSnapshot, ItOutlivesItsSequence) {
  const Sequence sequence = sequence_with_sealed_pages();
  const Bytes wanted = saved_bytes(cache, sequence, {.end = 256}).value();
  KvSnapshot snapshot = cache.snapshot(sequence, 0, 256).value();
  ASSERT_OK(cache.close(sequence));
  const std::vector<float> others(16, 2.5F);
  ASSERT_OK(zeros.write(std::as_bytes(std::span(others))));
  const Sequence other = sequence_of(cache, 600);  // takes pages that are free, for other values
  EXPECT_GE(cache.counters().sealed.used, 8U) << "of keys and values, held";
  EXPECT_EQ(bytes_of(std::move(snapshot)), wanted);
  ASSERT_OK(cache.close(other));
  EXPECT_EQ(cache.counters().sealed.used, 0U);
}

TEST_F(KvCacheSnapshot, ItLetsGoUnread) {
  const Sequence sequence = sequence_with_sealed_pages();
  {
    const KvSnapshot snapshot = cache.snapshot(sequence, 0, 256).value();
  }
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(cache.counters().sealed.used, 0U);
}

TEST_F(KvCacheSnapshot, WhatMayChangeIsRefused) {
  const Sequence sequence = sequence_with_sealed_pages();
  const auto refused = [&](std::uint64_t begin, std::uint64_t end) {
    auto snapshot = cache.snapshot(sequence, begin, end);
    EXPECT_FALSE(snapshot.ok());
    return snapshot ? "" : snapshot.error().message;
  };
  EXPECT_NE(refused(0, 320).find("end is 320; wanted at most 256"), std::string::npos);
  EXPECT_NE(refused(0, 100).find("a multiple of the 64"), std::string::npos);
  EXPECT_NE(refused(32, 64).find("begin is 32"), std::string::npos);
  EXPECT_NE(refused(128, 64).find("begin is 128"), std::string::npos);
  Encoder encoder = device.encoder();
  const KvStep step = cache.extend(encoder, sequence, 1).value();
  EXPECT_EQ(cache.snapshot(sequence, 0, 64).error().code, Errc::busy);
}

TEST_F(KvCacheSnapshot, ItIsSavedOnce) {
  const Sequence sequence = sequence_with_sealed_pages();
  KvSnapshot snapshot = cache.snapshot(sequence, 0, 64).value();
  const auto nowhere = [](std::span<const std::byte>) -> Status { return {}; };
  ASSERT_OK(std::move(snapshot).save(nowhere));
  EXPECT_EQ(std::move(snapshot).save(nowhere).error().code, Errc::invalid_argument);  // NOLINT(bugprone-use-after-move)
}

TEST_F(KvCacheSnapshot, AnErrorOfTheSinkEndsItAndLetsGo) {
  const Sequence sequence = sequence_with_sealed_pages();
  const Status status = cache.snapshot(sequence, 0, 256).value().save([](std::span<const std::byte>) -> Status {
    return Error{Errc::io, "full"};
  });
  EXPECT_EQ(status.error().message, "full");
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(cache.counters().sealed.used, 0U);
}

TEST_F(KvCacheSnapshot, AReaderGivesWhatMemoryGives) {
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 300)).value();
  const KvLoaded loaded = cache.load(reader_of(bytes)).value();
  EXPECT_EQ(loaded.length, 300U);
  EXPECT_EQ(saved_bytes(cache, loaded.sequence).value(), bytes);
}

TEST_F(KvCacheSnapshot, AnErrorOfAReaderEndsTheLoad) {
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 300)).value();
  const Bytes cut(bytes.begin(), bytes.end() - 1);
  const KvCounters before = cache.counters();
  const auto loaded = cache.load(reader_of(cut));
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("beyond the end"), std::string::npos) << loaded.error().message;
  expect_unused_but_for(before);
  EXPECT_EQ(cache.load(ByteReader()).error().code, Errc::invalid_argument);
}

TEST_F(KvCacheSnapshot, LayoutsSayWhereSavedPartsAre) {
  const Sequence sequence = sequence_of(cache, 300);
  const std::vector<KvNote> notes{{64, Bytes(5)}, {300, Bytes(3)}};
  const Bytes bytes = saved_bytes(cache, sequence, {.notes = notes}).value();
  const KvSaved saved = read_saved_header(source_of(bytes)).value();
  const KvSavedLayout layout = lay_out_saved(saved).value();
  EXPECT_EQ(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(saved.header_bytes)), layout.header);
  std::uint64_t at = saved.header_bytes;
  for (std::size_t i = 0; i < layout.parts.size(); ++i) {
    const KvSavedPart& part = layout.parts[i];
    EXPECT_EQ(part.offset, at) << i;
    at += part.bytes;
    std::uint32_t number = 0;
    std::memcpy(&number, &bytes[at - 4], sizeof(number));
    EXPECT_EQ(number, i);
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(layout.parts.size(), 2 + 2 + 2 * 5U) << "notes, sinks, and five pages of each side";
}

TEST_F(KvCacheSnapshot, LayoutsThatCannotBeAreRefused) {
  KvSaved saved = read_saved_header(source_of(saved_bytes(cache, sequence_of(cache, 300)).value())).value();
  saved.groups[0].k.first_page = 1;
  EXPECT_EQ(lay_out_saved(saved).error().code, Errc::io) << "there is no window";
  saved.groups[0].k.first_page = 0;
  saved.begin = 301;
  EXPECT_EQ(lay_out_saved(saved).error().code, Errc::io);
}

}  // namespace
}  // namespace rota::test
