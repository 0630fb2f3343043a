#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string_view>

#include "page_store/valkey/reply.h"
#include "page_store/valkey/server_key.h"
#include "page_store/valkey/slot_map.h"

// What a server sends, in pieces of any size, and what is read out of it.

namespace {

using namespace rota;
using namespace rota::page_store;

constexpr ReplyLimit kMost{.bytes = 1 << 18, .items = 1 << 10};

void require(bool holds) {
  if (!holds) std::abort();
}

// Lists within lists are few: this goes into each.
ReplyLimit taken_by(const Reply& reply) {
  ReplyLimit all{.bytes = reply.whole_text().size(), .items = 1};
  for (const auto& item : reply.list) {
    const ReplyLimit one = taken_by(*item);
    all.bytes += one.bytes;
    all.items += one.items;
  }
  return all;
}

void use(const Reply& reply) {
  const ReplyLimit taken = taken_by(reply);
  require(taken.bytes <= kMost.bytes + 4096 && taken.items <= kMost.items);
  if (auto map = SlotMap::read(reply, "host"); map) {
    for (const std::uint16_t slot : std::initializer_list<std::uint16_t>{0, 77, 16383}) {
      const auto master = map->master_of(slot);
      require(!master || master->port != 0);
    }
    map->move(77, {"host", 7});
    require(map->masters().size() <= kSlots);
  }
  if (const auto redirection = read_redirection(reply.text, "host")) {
    require(redirection->slot < kSlots && redirection->to.port != 0 && !redirection->to.host.empty());
  }
  if (const auto name = read_server_key("rota:", reply.text)) require(server_key("rota:", *name) == reply.text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = data[0] + std::size_t{1};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  ReplyReader reader;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    if (!reader.feed(bytes.substr(at, step))) return 0;
    for (;;) {
      const auto reply = reader.next(kMost);
      if (!reply) return 0;
      if (*reply == nullptr) break;
      use(**reply);
    }
  }
  return 0;
}
