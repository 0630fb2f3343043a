#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rota/result.h"
#include "runtime/backend.h"
#include "runtime/committed_blocks.h"

namespace rota::cpu {

// Addresses that take memory where they are first written. What the system is asked for is a matter of how it counts:
//
//   as most do, memory in use   all can be written; decommit() gives memory back
//   strictly, what may be used  what is not committed can only be read, as zeros; commit() may be refused
//                               (RLIMIT_DATA, vm.overcommit_memory=2)
//
class SparseMemory final : public runtime::Memory {
 public:
  static Result<std::shared_ptr<SparseMemory>> reserve(std::uint64_t bytes);
  ~SparseMemory() override;

  // See runtime::Backend.
  static Status commit(std::span<const runtime::SparseRanges> parts);
  static void decommit(std::span<const runtime::SparseRanges> parts);

 private:
  // What the system mapped.
  struct Mapped {
    std::byte* begin = nullptr;
    std::uint64_t bytes = 0;
    bool strictly = false;
  };
  SparseMemory(std::uint64_t bytes, const Mapped& mapped) noexcept;
  struct Blocks {
    SparseMemory& memory;
    std::vector<core::ByteRange> blocks;

    bool map() const noexcept;
    void unmap() const noexcept;
  };
  static SparseMemory& of(const runtime::SparseRanges& part) { return static_cast<SparseMemory&>(*part.memory); }

  Mapped mapped_;
  runtime::CommittedBlocks blocks_;
};

}  // namespace rota::cpu
