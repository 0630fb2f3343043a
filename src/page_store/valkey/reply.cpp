#include "page_store/valkey/reply.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <string_view>
#include <system_error>

#include "core/error.h"

// hiredis reads the protocol, and calls here for each item. What is made stays with its parent, and the root with the
// reader:
//
//   *2 $3 abc *1 :7      create_list(root), create_text(root[0]), create_list(root[1]), create_integer(root[1][0])
//
// A list grows as its items come: its announced size takes no memory.
//
// Through hiredis a page is copied twice more, and from one buffer to a larger one again and again: half of a load. So
// a long text that is a whole reply passes by it; only "$", its size and what came together with them does not:
//
//   "$4391040\r\n" and the first bytes | the rest: straight into the Reply | "\r\n" | the next reply

namespace rota::page_store {
namespace {

constexpr int kMostDepth = 6;                // CLUSTER SLOTS has 4
constexpr std::uint64_t kSlackBytes = 4096;  // every reply may take: an error's text, or any other line

constexpr std::string_view kLineEnd = "\r\n";
constexpr const char* kTooMuch = "more bytes than were asked for";

int depth_of(const redisReadTask* task) {
  int depth = 0;
  for (; task->parent != nullptr; task = task->parent) ++depth;
  return depth;
}

// Null where limits forbid it; the reader takes that for an error and frees the root.
Reply* create(const redisReadTask* task, Reply::Kind kind, std::uint64_t bytes) {
  auto& limits = *static_cast<ReplyReader::Limits*>(task->privdata);
  if (depth_of(task) > kMostDepth) {
    limits.broken = "lists within lists";
    return nullptr;
  }
  if (limits.left.items < 1 || limits.left.bytes < bytes) {
    limits.broken = kTooMuch;
    return nullptr;
  }
  limits.left.items -= 1;
  limits.left.bytes -= bytes;
  try {
    auto reply = std::make_unique<Reply>();
    reply->kind = kind;
    Reply* const made = reply.get();
    if (task->parent == nullptr) return reply.release();
    static_cast<Reply*>(task->parent->obj)->list.push_back(std::move(reply));
    return made;
  } catch (const std::bad_alloc&) {
    limits.broken = "too many bytes for this host's memory";
    return nullptr;
  }
}

void* create_text(const redisReadTask* task, char* bytes, std::size_t size) {
  Reply::Kind kind = Reply::Kind::text;
  if (task->type == REDIS_REPLY_STATUS) kind = Reply::Kind::status;
  if (task->type == REDIS_REPLY_ERROR) kind = Reply::Kind::error;
  Reply* const reply = create(task, kind, size);
  if (reply == nullptr) return nullptr;
  try {
    reply->text.assign(bytes, size);
    return reply;
  } catch (const std::bad_alloc&) {
    static_cast<ReplyReader::Limits*>(task->privdata)->broken = "too many bytes for this host's memory";
    if (task->parent == nullptr) const std::unique_ptr<Reply> unused(reply);
    return nullptr;
  }
}

void* create_list(const redisReadTask* task, std::size_t) { return create(task, Reply::Kind::list, 0); }

void* create_integer(const redisReadTask* task, long long value) {
  Reply* const reply = create(task, Reply::Kind::integer, 0);
  if (reply != nullptr) reply->integer = value;
  return reply;
}

void* create_nil(const redisReadTask* task) { return create(task, Reply::Kind::nil, 0); }

// Types of the protocol's third version, which nobody asked for.
void* refuse(const redisReadTask* task) {
  static_cast<ReplyReader::Limits*>(task->privdata)->broken = "a type of another version of the protocol";
  return nullptr;
}
void* create_double(const redisReadTask* task, double, char*, std::size_t) { return refuse(task); }
void* create_bool(const redisReadTask* task, int) { return refuse(task); }

void free_reply(void* reply) { const std::unique_ptr<Reply> unused(static_cast<Reply*>(reply)); }

redisReplyObjectFunctions functions{.createString = create_text,
                                    .createArray = create_list,
                                    .createInteger = create_integer,
                                    .createDouble = create_double,
                                    .createNil = create_nil,
                                    .createBool = create_bool,
                                    .freeObject = free_reply};

// And the line's end.
std::unique_ptr<char[]> new_text(std::size_t bytes) {
  return std::make_unique_for_overwrite<char[]>(bytes + kLineEnd.size());
}

Error bad_reply(const std::string& what) { return {Errc::io, core::text("the answer is none: {}", what)}; }

}  // namespace

std::unique_ptr<char[]> SpareTexts::take(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes == bytes_ && !texts_.empty()) {
      std::unique_ptr<char[]> text = std::move(texts_.back());
      texts_.pop_back();
      return text;
    }
    if (bytes != bytes_) texts_.clear();
    bytes_ = bytes;
  }
  return new_text(bytes);
}

void SpareTexts::give(std::unique_ptr<char[]> text, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == bytes_ && text != nullptr) texts_.push_back(std::move(text));
}

ReplyReader::ReplyReader() : reader_(redisReaderCreateWithFunctions(&functions), redisReaderFree) {
  if (reader_ == nullptr) throw std::bad_alloc();
  reader_->privdata = &limits_;
}

ReplyReader::~ReplyReader() = default;

bool ReplyReader::is_empty() const noexcept { return !is_within_ && long_ == nullptr && reader_->len == reader_->pos; }

// Of a size that may be, and not all here.
void ReplyReader::begin_long(std::uint64_t most_bytes, SpareTexts* spare) {
  const std::string_view here(reader_->buf + reader_->pos, reader_->len - reader_->pos);
  const std::size_t line = here.substr(0, 24).find(kLineEnd);
  if (!here.starts_with('$') || line == std::string_view::npos) return;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(here.data() + 1, here.data() + line, bytes);
  if (error != std::errc() || end != here.data() + line) return;
  if (bytes < kLongBytes || bytes > most_bytes + kSlackBytes) return;
  const std::string_view text = here.substr(line + kLineEnd.size());
  if (text.size() >= bytes + kLineEnd.size()) return;
  auto reply = std::make_unique<Reply>();
  reply->kind = Reply::Kind::text;
  reply->long_text = spare != nullptr ? spare->take(bytes) : new_text(bytes);
  reply->long_bytes = bytes;
  std::ranges::copy(text, reply->long_text.get());
  long_ = std::move(reply);
  here_bytes_ = text.size();
  reader_->pos = reader_->len;
}

std::span<char> ReplyReader::place() noexcept {
  if (long_ == nullptr) return {};
  return std::span(long_->long_text.get(), long_->long_bytes + kLineEnd.size()).subspan(here_bytes_);
}

void ReplyReader::placed(std::size_t bytes) noexcept { here_bytes_ += bytes; }

Status ReplyReader::feed(std::span<const char> bytes) {
  if (const std::span<char> to = place(); !to.empty()) {
    const std::size_t size = std::min(to.size(), bytes.size());
    std::ranges::copy(bytes.first(size), to.begin());
    placed(size);
    bytes = bytes.subspan(size);
  }
  if (bytes.empty() || redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) == REDIS_OK) return {};
  return bad_reply(reader_->errstr);
}

Result<std::unique_ptr<Reply>> ReplyReader::next(const ReplyLimit& most, SpareTexts* spare) {
  if (!is_within_ && long_ == nullptr) begin_long(most.bytes, spare);
  if (long_ != nullptr) return next_long();
  if (!is_within_) limits_ = {.left = {.bytes = most.bytes + kSlackBytes, .items = most.items}};
  void* found = nullptr;
  if (redisReaderGetReply(reader_.get(), &found) != REDIS_OK) {
    return bad_reply(limits_.broken != nullptr ? limits_.broken : reader_->errstr);
  }
  std::unique_ptr<Reply> reply(static_cast<Reply*>(found));
  const bool has_begun = reader_->ridx > 0 || (reader_->ridx == 0 && reader_->task[0]->type >= 0);
  is_within_ = reply == nullptr && (has_begun || reader_->len > reader_->pos);
  if (reply == nullptr && !may_wait(most)) return bad_reply(kTooMuch);
  return reply;
}

// An item is in hiredis' memory until its end is there. It begins with a line, which is short whatever it announces.
bool ReplyReader::may_wait(const ReplyLimit& most) const {
  const std::string_view here(reader_->buf + reader_->pos, reader_->len - reader_->pos);
  if (here.size() <= kSlackBytes) return true;
  return here.size() <= most.bytes + kSlackBytes &&
         here.substr(0, kSlackBytes).find(kLineEnd) != std::string_view::npos;
}

Result<std::unique_ptr<Reply>> ReplyReader::next_long() {
  if (!place().empty()) return std::unique_ptr<Reply>();
  std::unique_ptr<Reply> reply = std::move(long_);
  if (std::string_view(reply->long_text.get(), here_bytes_).ends_with(kLineEnd)) return reply;
  return bad_reply("a text without its end");
}

}  // namespace rota::page_store
