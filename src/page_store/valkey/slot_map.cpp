#include "page_store/valkey/slot_map.h"

#include <algorithm>
#include <charconv>

#include "core/text.h"

// CLUSTER SLOTS:  [ [first slot, last slot, master, replica...] ... ]      a node is [host, port, id...]

namespace rota::page_store {
namespace {

Error bad_map(const char* what) { return {Errc::io, core::text("the answer to CLUSTER SLOTS is none: {}", what)}; }

bool is_number(const Reply& reply, long long most) {
  return reply.kind == Reply::Kind::integer && reply.integer >= 0 && reply.integer <= most;
}

std::optional<Address> node_of(const Reply& node, const std::string& asked_host) {
  const bool is_node = node.kind == Reply::Kind::list && node.list.size() >= 2 && is_number(*node.list[1], 65535);
  if (!is_node || node.list[1]->integer == 0) return {};
  const std::string& host = node.list[0]->text;
  return Address{host.empty() || host == "?" ? asked_host : host, static_cast<std::uint16_t>(node.list[1]->integer)};
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<std::uint16_t> SlotMap::number_of(const Address& master) {
  const auto found = std::ranges::find(masters_, master);
  if (found == masters_.end() && masters_.size() >= kMostMasters) return bad_map("there are too many masters");
  const auto number = static_cast<std::uint16_t>(found - masters_.begin());
  if (found == masters_.end()) masters_.push_back(master);
  return number;
}

Result<SlotMap> SlotMap::read(const Reply& reply, const std::string& asked_host) {
  if (reply.kind != Reply::Kind::list) return bad_map("it is no list");
  SlotMap map;
  for (const auto& range : reply.list) {
    const auto& items = range->list;
    const bool is_range = items.size() >= 3 && is_number(*items[0], kSlots - 1) && is_number(*items[1], kSlots - 1);
    if (!is_range) return bad_map("it has something else than slots and their nodes");
    const auto master = node_of(*items[2], asked_host);
    if (!master) return bad_map("a node is no host and port");
    auto number = map.number_of(*master);
    if (!number) return number.error();
    for (long long slot = items[0]->integer; slot <= items[1]->integer; ++slot) {
      map.of_slot_[static_cast<std::size_t>(slot)] = *number;
    }
  }
  return map;
}

std::optional<Address> SlotMap::master_of(std::uint16_t slot) const {
  const std::uint16_t number = of_slot_[slot % kSlots];
  if (number >= masters_.size()) return {};
  return masters_[number];
}

void SlotMap::move(std::uint16_t slot, const Address& to) {
  if (auto number = number_of(to); number) of_slot_[slot % kSlots] = *number;
}

std::optional<Redirection> read_redirection(std::string_view error, const std::string& asked_host) {
  Redirection found{.is_ask = error.starts_with("ASK ")};
  if (!found.is_ask && !error.starts_with("MOVED ")) return {};
  error.remove_prefix(found.is_ask ? 4 : 6);
  const std::size_t space = error.find(' '), colon = error.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) return {};
  if (!read_number(error.substr(0, space), found.slot) || found.slot >= kSlots) return {};
  if (!read_number(error.substr(colon + 1), found.to.port) || found.to.port == 0) return {};
  found.to.host = error.substr(space + 1, colon - space - 1);
  if (found.to.host.empty() || found.to.host == "?") found.to.host = asked_host;
  if (found.to.host.size() > 255) return {};
  return found;
}

}  // namespace rota::page_store
