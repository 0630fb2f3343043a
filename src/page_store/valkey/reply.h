#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rota/result.h"

struct redisReader;  // NOLINT(readability-identifier-naming): of hiredis

// What servers answer, read by hiredis' reader and bounded here: a server that is wrong or hostile takes neither memory
// nor stack beyond what was asked for.

namespace rota::page_store {

struct Reply {
  enum class Kind : std::uint8_t { text, status, error, integer, nil, list };

  Kind kind = Kind::nil;
  long long integer = 0;
  std::string text = {};                   // of texts that are not long, of statuses and errors
  std::unique_ptr<char[]> long_text = {};  // not a string, which would be written twice
  std::size_t long_bytes = 0;
  std::vector<std::unique_ptr<Reply>> list = {};

  // Of a text, long or not.
  std::string_view whole_text() const noexcept {
    return long_text != nullptr ? std::string_view(long_text.get(), long_bytes) : text;
  }
};

// Memory of long texts that were read, for those to come: the system would clear new memory for each. Thread-safe.
class SpareTexts {
 public:
  std::unique_ptr<char[]> take(std::size_t bytes);
  void give(std::unique_ptr<char[]> text, std::size_t bytes);

 private:
  std::mutex mutex_;
  std::size_t bytes_ = 0;  // of each
  std::vector<std::unique_ptr<char[]>> texts_;
};

// What a reply may take at most.
struct ReplyLimit {
  std::uint64_t bytes = 0;  // of texts
  std::uint64_t items = 1;  // lists count, and what is in them
};

class ReplyReader {
 public:
  ReplyReader();
  ~ReplyReader();
  ReplyReader(const ReplyReader&) = delete;
  ReplyReader& operator=(const ReplyReader&) = delete;

  Status feed(std::span<const char> bytes);

  // Where the next bytes may be put instead of being fed: the rest of a long text, in part. Empty if there is none.
  std::span<char> place() noexcept;
  void placed(std::size_t bytes) noexcept;

  // The next reply, or null while it is not all there. Errc::io for what is none, or takes more than it may.
  Result<std::unique_ptr<Reply>> next(const ReplyLimit& most, SpareTexts* spare = nullptr);

  // Nothing was fed that is not read yet.
  bool is_empty() const noexcept;

  static constexpr std::size_t kLongBytes = 64U << 10;  // of a text that hiredis does not see

  struct Limits {
    ReplyLimit left;
    const char* broken = nullptr;  // why a reply is refused
  };

 private:
  void begin_long(std::uint64_t most_bytes, SpareTexts* spare);
  bool may_wait(const ReplyLimit& most) const;
  Result<std::unique_ptr<Reply>> next_long();

  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
  Limits limits_;
  bool is_within_ = false;            // a reply whose beginning was read
  std::unique_ptr<Reply> long_ = {};  // a text that is on its way
  std::size_t here_bytes_ = 0;        // of it, and of the line's end behind it
};

}  // namespace rota::page_store
