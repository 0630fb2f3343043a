#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "page_store/medium.h"
#include "page_store/object.h"
#include "page_store/url.h"
#include "page_store/valkey/open_valkey.h"

// Objects in a store on servers.

namespace rota::test {

using page_store::Clock;
using page_store::Deadline;
using page_store::Medium;
using page_store::ObjectHeader;
using page_store::ObjectName;

inline Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }
inline Deadline soon() { return in(std::chrono::seconds(30)); }

inline Result<std::shared_ptr<Medium>> open_at(const std::string& url,
                                               std::chrono::milliseconds deadline = std::chrono::seconds(10)) {
  auto place = page_store::read_url(url);
  if (!place) return place.error();
  return page_store::open_valkey(*place, {.deadline = deadline});
}

inline PageKey key_of(std::uint32_t number) {
  PageKey key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    key.bytes[i] = static_cast<std::byte>(number >> (i % 4 * 8) ^ (i / 4 * 29));
  }
  return key;
}

// Bytes that tell whose they are.
inline std::vector<std::byte> payload_of(std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  std::uint32_t state = number * 2654435761U + 1;
  for (std::byte& byte : payload) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return payload;
}

inline ObjectHeader header_of(std::uint32_t number, const std::vector<std::byte>& payload,
                              StoredPart part = StoredPart::pages) {
  return {.name = {key_of(number), part},
          .parent = key_of(number + 1000),
          .index = number,
          .payload_bytes = payload.size(),
          .payload_sum = page_store::payload_sum(payload)};
}

inline Status put(Medium& medium, std::uint32_t number, std::size_t bytes, Deadline deadline = soon()) {
  const auto payload = payload_of(number, bytes);
  return medium.put(header_of(number, payload), payload, deadline);
}

}  // namespace rota::test
