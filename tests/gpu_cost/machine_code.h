#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// A kernel as RADV's assembler text has it: blocks, loops, and what an instruction asks of the machine.

namespace rota::test {

enum class Kind : std::uint8_t {
  vector_alu,
  scalar_alu,
  vector_load,
  vector_store,   // atomics that return nothing, too
  scalar_load,    // of a buffer that is bound
  constant_load,  // of descriptors and params
  shared_load,
  shared_store,
  wait,
  barrier,
  branch,
  hint  // takes no time worth counting
};

struct Instruction {
  Kind kind = Kind::hint;
  std::uint32_t bytes = 0;               // that a lane, or all lanes together of a scalar load, move
  std::uint32_t products = 0;            // multiply-adds of a lane
  std::optional<std::uint32_t> binding;  // of loads, where the code shows it
  std::optional<std::uint32_t> vector_loads_left, others_left;  // of waits: no more than these remain on their way
  bool tests_lanes = false;                                     // changes which lanes are active
  std::size_t depth = 0;                                        // loops around it
  std::string text;
};

struct Block {
  std::string name;
  std::vector<Instruction> instructions;
  std::vector<std::size_t> successors;
  bool is_passed_by = false;  // the shorter side of a condition that all lanes share
};

// Blocks [first, last], of which `last` ends the repeated part. Loops nest or have nothing in common.
struct Loop {
  std::size_t first, last;
  std::optional<std::size_t> parent;  // the innermost loop around it
  bool by_lanes = false;              // each lane leaves when it is done: the counter begins at the lane's number

  bool contains(std::size_t block) const noexcept { return first <= block && block <= last; }
};

struct MachineCode {
  std::vector<Block> blocks;  // as they stand in the text
  std::vector<Loop> loops;    // outer ones first, then as they stand in the text

  // The innermost loop around a block.
  std::optional<std::size_t> loop_of(std::size_t block) const;
  // Whether a branch inside of its loop passes it by.
  bool is_conditional(std::size_t block) const;
};

// Throws where the text is none of RADV's, or has loops that overlap.
MachineCode machine_code_of(std::string_view assembly);

}  // namespace rota::test
