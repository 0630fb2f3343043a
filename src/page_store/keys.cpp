#include <sodium/crypto_hash_sha256.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/little_endian.h"
#include "rota/kv_saved.h"
#include "rota/store.h"

// Chains of keys:
//
//   root = SHA-256(kRootTag, weights, rope, salt, groups)        each with its size before it
//   key of a page = SHA-256(kPageTag, key of the page before it, tokens)
//
// The tags tell the two apart, so that nobody can choose a model whose root is a page's key.

namespace rota::inline ROTA_ABI {
namespace {

constexpr std::string_view kRootTag = "rota prefix root 1";
constexpr std::string_view kPageTag = "rota prefix page 1";

class Hash {
 public:
  Hash() { crypto_hash_sha256_init(&state_); }

  void add(std::span<const std::byte> bytes) {
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  // A field that ends where it says, whatever is in it.
  void add_sized(std::span<const std::byte> bytes) {
    std::array<std::byte, 8> size{};
    core::put_little_endian(size, bytes.size());
    add(size);
    add(bytes);
  }
  void add_sized(std::string_view text) { add_sized(std::as_bytes(std::span(text))); }

  PageKey key() {
    PageKey key;
    static_assert(crypto_hash_sha256_BYTES == sizeof(key.bytes));
    crypto_hash_sha256_final(&state_, reinterpret_cast<unsigned char*>(key.bytes.data()));
    return key;
  }

 private:
  crypto_hash_sha256_state state_;
};

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

}  // namespace

std::string hex(const PageKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : key.bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

Result<PageKey> page_key(std::string_view hex) {
  PageKey key;
  const bool is_key =
      hex.size() == 2 * key.bytes.size() && std::ranges::all_of(hex, [](char letter) { return digit_of(letter) >= 0; });
  if (!is_key) return core::refuse({"page_key", {"hex"}}, "another text", "64 digits, 0 to 9 and a to f");
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    key.bytes[i] = static_cast<std::byte>(digit_of(hex[2 * i]) * 16 + digit_of(hex[2 * i + 1]));
  }
  return key;
}

Result<PageKey> root_key(const PrefixModel& model, std::span<const KvGroup> groups) {
  return core::guarded([&]() -> Result<PageKey> {
    if (model.weights.empty()) {
      return core::refuse({"root_key", {"model", {}, "weights"}}, "empty", "the name of the weights, best a hash");
    }
    // The header of a saved sequence without tokens has all that its bytes depend on, and the tails.
    KvSaved nothing;
    for (const KvGroup& group : groups) {
      nothing.groups.push_back({.group = group});
      nothing.groups.back().group.tail = 0;
    }
    auto layout = lay_out_saved(nothing);
    if (!layout) return layout.error();
    Hash hash;
    hash.add(kRootTag);
    hash.add_sized(model.weights);
    hash.add_sized(model.rope);
    hash.add_sized(model.salt);
    hash.add_sized(layout->header);
    return hash.key();
  });
}

Result<PageKey> next_key(const PageKey& parent, std::span<const std::int32_t> tokens) {
  return core::guarded([&]() -> Result<PageKey> {
    Hash hash;
    hash.add(kPageTag);
    hash.add(parent.bytes);
    std::array<std::byte, 256> piece{};
    for (std::size_t i = 0; i < tokens.size();) {
      std::size_t size = 0;
      for (; i < tokens.size() && size < piece.size(); ++i, size += 4) {
        core::put_little_endian(std::span(piece).subspan(size, 4), static_cast<std::uint32_t>(tokens[i]));
      }
      hash.add(std::span(piece).first(size));
    }
    return hash.key();
  });
}

std::string_view name(StoredPart part) noexcept {
  switch (part) {
    case StoredPart::pages: return "pages";
    case StoredPart::window: return "window";
    case StoredPart::state: return "state";
  }
  return "?";
}

}  // namespace rota::inline ROTA_ABI
