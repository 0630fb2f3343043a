#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace rota::runtime {

// Memory of a backend. It does not own its device, so that commands in flight may own it without a cycle.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  // Its first byte, or null if the host cannot address the memory.
  std::byte* host() const noexcept { return host_; }

  // Tickets of the newest submissions that read, and write, this memory.
  std::atomic<std::uint64_t> last_read_ticket{0}, last_write_ticket{0};

  // Its number in the list of commands that named it last. Another list asks whether it has this memory there.
  std::atomic<std::uint32_t> number_in_list{0};

 protected:
  Memory(std::uint64_t size_bytes, std::byte* host) noexcept : size_bytes_(size_bytes), host_(host) {}

 private:
  std::uint64_t size_bytes_;
  std::byte* host_;
};

}  // namespace rota::runtime
