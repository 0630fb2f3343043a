#include "page_store/valkey/command.h"

#include <array>

#include "core/text.h"

namespace rota::page_store {
namespace {

constexpr unsigned kPolynomial = 0x1021;  // CRC-16/XMODEM, as the specification of clusters has it

constexpr std::array<std::uint16_t, 256> kTable = [] {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? crc << 1 ^ kPolynomial : crc << 1;
    table[i] = static_cast<std::uint16_t>(crc);
  }
  return table;
}();

void add_word(std::string& to, std::string_view word) { to += core::text("${}\r\n{}\r\n", word.size(), word); }

}  // namespace

std::string text(const Address& address) {
  const bool has_colon = address.host.find(':') != std::string::npos;
  return has_colon ? core::text("[{}]:{}", address.host, address.port)
                   : core::text("{}:{}", address.host, address.port);
}

std::uint16_t slot_of(std::string_view key) {
  if (const std::size_t open = key.find('{'); open != std::string_view::npos) {
    const std::size_t close = key.find('}', open);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  unsigned crc = 0;
  for (const char letter : key) {
    crc = (crc << 8 ^ kTable[(crc >> 8 ^ static_cast<unsigned char>(letter)) & 0xff]) & 0xffff;
  }
  return static_cast<std::uint16_t>(crc % kSlots);
}

std::string command(std::initializer_list<std::string_view> words) {
  std::string all = core::text("*{}\r\n", words.size());
  for (const std::string_view word : words) add_word(all, word);
  return all;
}

Request with_key(std::initializer_list<std::string_view> words, std::string_view key) {
  return {.head = command(words), .slot = slot_of(key)};
}

Request set_command(const NewValue& value) {
  Request request{.value = value.rest, .tail = "\r\n", .slot = slot_of(value.key)};
  request.head = core::text("*{}\r\n$3\r\nSET\r\n", value.ttl ? 5 : 3);
  add_word(request.head, value.key);
  request.head += core::text("${}\r\n", value.first.size() + value.rest.size());
  for (const std::byte byte : value.first) request.head += static_cast<char>(byte);
  if (value.ttl) {
    add_word(request.tail, "EX");
    add_word(request.tail, std::to_string(*value.ttl));
  }
  return request;
}

}  // namespace rota::page_store
