#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "page_store/valkey/command.h"
#include "page_store/valkey/reply.h"

namespace rota::page_store {

// Which master has which slot of a cluster.
class SlotMap {
 public:
  // Of what CLUSTER SLOTS answered. A node without a host is on the one that was asked.
  static Result<SlotMap> read(const Reply& reply, const std::string& asked_host);

  std::optional<Address> master_of(std::uint16_t slot) const;
  void move(std::uint16_t slot, const Address& to);
  const std::vector<Address>& masters() const noexcept { return masters_; }

 private:
  static constexpr std::uint16_t kNobody = 0xffff;
  static constexpr std::size_t kMostMasters = 4096;

  Result<std::uint16_t> number_of(const Address& master);

  std::vector<Address> masters_;
  std::vector<std::uint16_t> of_slot_ = std::vector<std::uint16_t>(kSlots, kNobody);
};

// What MOVED and ASK say: "MOVED 3999 127.0.0.1:6381". None: something else.
struct Redirection {
  bool is_ask = false;
  std::uint16_t slot = 0;
  Address to;
};
std::optional<Redirection> read_redirection(std::string_view error, const std::string& asked_host);

}  // namespace rota::page_store
