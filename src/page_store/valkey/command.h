#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "page_store/valkey/reply.h"

// Commands as servers read them, and which server a key is on.

namespace rota::page_store {

// All that a user of the store needs besides the prefix' keys, as a server's ACL writes it.
inline constexpr std::string_view kPermissions =
    "+get +set +strlen +getrange +unlink +scan +asking +cluster|slots +info";

struct Address {
  std::string host;
  std::uint16_t port = 0;

  friend auto operator<=>(const Address&, const Address&) = default;
};

// "host:port", and "[host]:port" where the host has colons.
std::string text(const Address& address);

inline constexpr std::size_t kSlots = 16384;

// Of a cluster: CRC-16 of the key, or of what stands in its first braces.
std::uint16_t slot_of(std::string_view key);

struct Request {
  std::string head;                       // all of the command, or what comes before the value
  std::span<const std::byte> value = {};  // stays where it is until the request was answered
  std::string tail = {};
  ReplyLimit most = {};  // of the answer
  std::uint16_t slot = 0;
  std::optional<Address> at = {};  // this server, whatever is in which slot
};

std::string command(std::initializer_list<std::string_view> words);

// A command with a key, for the server that has it.
Request with_key(std::initializer_list<std::string_view> words, std::string_view key);

// SET of `first` and `rest`, which is not copied; it expires after so many seconds, if any.
struct NewValue {
  std::string_view key;
  std::span<const std::byte> first, rest;
  std::optional<std::uint32_t> ttl = {};
};
Request set_command(const NewValue& value);

}  // namespace rota::page_store
