#include "gpu_cost/machine_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>

namespace rota::test {
namespace {

constexpr std::uint32_t kDescriptorBytes = 16;  // of a storage buffer; a set has them by the number of the binding

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::optional<std::uint32_t> number_of(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.begin(), text.end(), number, hexadecimal ? 16 : 10);
  if (code != std::errc{} || end != text.end()) return std::nullopt;
  return number;
}

// "op a, s[2:5], 0 offen" is op, a, s[2:5], 0 offen.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  const std::size_t name_end = std::min(line.find(' '), line.size());
  words.emplace_back(line.substr(0, name_end));
  for (std::size_t at = name_end; at < line.size();) {
    const std::size_t begin = line.find_first_not_of(" ,", at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(',', begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

struct Registers {
  std::size_t first = 0, count = 0;  // none: count is 0
};

// "s7" or "s[4:7]", perhaps with words after it.
Registers scalar_registers(std::string_view operand) {
  operand = operand.substr(0, operand.find(' '));
  if (!operand.starts_with('s')) return {};
  operand.remove_prefix(1);
  if (const auto one = number_of(operand)) return {*one, 1};
  const std::size_t colon = operand.find(':');
  if (!operand.starts_with('[') || !operand.ends_with(']') || colon == std::string_view::npos) return {};
  const auto first = number_of(operand.substr(1, colon - 1));
  const auto last = number_of(operand.substr(colon + 1, operand.size() - colon - 2));
  if (!first || !last || *last < *first) return {};
  return {*first, *last - *first + 1};
}

// The target comes first, and behind it that of a carry.
bool may_write_scalars(std::string_view text) {
  const std::size_t target = text.find_first_not_of(' ', text.find(' '));
  return target != std::string_view::npos && (text[target] == 's' || has(text.substr(0, target), "_co_"));
}

// Of a name's end: b128, dwordx4, 2addr_b32, ushort, d16_u8.
std::uint32_t bytes_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::uint32_t>, 15> kSizes{{{"b128", 16},
                                                                                      {"dwordx4", 16},
                                                                                      {"b96", 12},
                                                                                      {"dwordx3", 12},
                                                                                      {"b512", 64},
                                                                                      {"dwordx16", 64},
                                                                                      {"b256", 32},
                                                                                      {"dwordx8", 32},
                                                                                      {"b64", 8},
                                                                                      {"dwordx2", 8},
                                                                                      {"b32", 4},
                                                                                      {"dword", 4},
                                                                                      {"16", 2},
                                                                                      {"short", 2},
                                                                                      {"8", 1}}};
  const std::uint32_t times = has(name, "2addr") || has(name, "read2") || has(name, "write2") ? 2 : 1;
  for (const auto& [end, bytes] : kSizes) {
    if (name.ends_with(end)) return times * bytes;
  }
  return name.ends_with("byte") ? 1 : 4;
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

Kind kind_of(std::string_view name) {
  if (starts_with_any(name, {"buffer_load", "global_load", "flat_load", "scratch_load"})) return Kind::vector_load;
  if (starts_with_any(name, {"buffer_", "global_", "flat_", "scratch_"})) return Kind::vector_store;
  if (name.starts_with("s_buffer_load")) return Kind::scalar_load;
  if (name.starts_with("s_load")) return Kind::constant_load;
  if (starts_with_any(name, {"ds_load", "ds_read"})) return Kind::shared_load;
  if (name.starts_with("ds_")) return Kind::shared_store;
  if (name == "s_waitcnt") return Kind::wait;
  if (name == "s_barrier") return Kind::barrier;
  if (starts_with_any(name, {"s_branch", "s_cbranch", "s_endpgm"})) return Kind::branch;
  if (starts_with_any(name, {"s_waitcnt", "s_clause", "s_delay", "s_nop", "s_sendmsg", "s_inst_prefetch", "s_set"})) {
    return Kind::hint;
  }
  return name.starts_with("v_") ? Kind::vector_alu : Kind::scalar_alu;
}

std::uint32_t products_of(std::string_view name) {
  const bool multiplies_and_adds =
      has(name, "_fma") || has(name, "_mac_") || has(name, "_mad_mix") || has(name, "_dot");
  if (!name.starts_with("v_") || !multiplies_and_adds) return 0;
  return has(name, "_pk_") || has(name, "_dot2") || has(name, "_dual_") ? 2 : has(name, "_dot4") ? 4 : 1;
}

// "s_waitcnt vmcnt(1) lgkmcnt(0)" waits until one load of vmcnt and none of lgkmcnt is left.
std::optional<std::uint32_t> left_of(std::string_view text, std::string_view counter) {
  const std::size_t found = text.find(std::string(counter) + "(");
  if (found == std::string_view::npos) return std::nullopt;
  const std::size_t begin = found + counter.size() + 1;
  return number_of(text.substr(begin, text.find(')', begin) - begin));
}

Instruction instruction_of(std::string_view text) {
  const std::string name(text.substr(0, text.find(' ')));
  Instruction made;
  made.kind = kind_of(name);
  made.products = products_of(name);
  made.text = text;
  switch (made.kind) {
    case Kind::vector_load:
    case Kind::vector_store:
    case Kind::scalar_load:
    case Kind::constant_load:
    case Kind::shared_load:
    case Kind::shared_store: made.bytes = bytes_of(name); break;
    default: break;
  }
  if (made.kind == Kind::wait) {
    made.vector_loads_left = left_of(text, "vmcnt");
    made.others_left = left_of(text, "lgkmcnt");
    if (!made.vector_loads_left && !made.others_left && !has(text, "expcnt")) {
      throw std::runtime_error(fmt::format("\"{}\" is no wait that is known", text));
    }
  }
  made.tests_lanes = name.starts_with("v_cmpx") || has(name, "saveexec");
  return made;
}

// Without the comment, which has the machine's words.
std::string_view code_in(std::string_view line) {
  line = line.substr(0, line.find(';'));
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
}

std::vector<Block> blocks_of(std::string_view assembly) {
  std::vector<Block> blocks;
  std::istringstream lines{std::string(assembly)};
  for (std::string line; std::getline(lines, line);) {
    const std::string_view code = code_in(line);
    if (code.empty()) continue;
    if (code.starts_with("BB") && code.ends_with(':')) {
      blocks.push_back({.name = std::string(code.substr(0, code.size() - 1)),
                        .instructions = {},
                        .successors = {},
                        .is_passed_by = false});
    } else if (blocks.empty()) {
      throw std::runtime_error(fmt::format("\"{}\" is before the first block", code));
    } else {
      blocks.back().instructions.push_back(instruction_of(code));
    }
  }
  if (blocks.empty()) throw std::runtime_error("the driver's assembly has no block");
  return blocks;
}

void find_successors(std::vector<Block>& blocks) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < blocks.size(); ++i) by_name[blocks[i].name] = i;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    bool falls_through = true;
    for (const Instruction& instruction : blocks[i].instructions) {
      if (instruction.kind != Kind::branch) continue;
      const std::vector<std::string> words = words_of(instruction.text);
      falls_through = falls_through && words[0] != "s_branch" && words[0] != "s_endpgm";
      if (words[0] == "s_endpgm") continue;
      const auto target = words.size() == 2 ? by_name.find(words[1]) : by_name.end();
      if (target == by_name.end()) throw std::runtime_error(fmt::format("\"{}\" goes nowhere", instruction.text));
      blocks[i].successors.push_back(target->second);
    }
    if (falls_through && i + 1 < blocks.size()) blocks[i].successors.push_back(i + 1);
  }
}

// Where a block's last branch goes, if it is one of these.
std::optional<std::size_t> target_of(const Block& block, std::initializer_list<std::string_view> branches) {
  if (block.instructions.empty() || !starts_with_any(block.instructions.back().text, branches)) return std::nullopt;
  return block.successors.front();
}

// if (a) { then } else { other }, by a condition that all lanes share: the side with fewer instructions is not taken.
//   block: s_cbranch_scc0 other | then ... s_branch end | other ... | end
// Inner conditions come first. Sides of a condition that differs between lanes are both taken.
void pass_by_shorter_sides(std::vector<Block>& blocks) {
  const auto size_of = [&](std::size_t first, std::size_t end) {
    std::size_t size = 0;
    for (std::size_t i = first; i < end; ++i) size += blocks[i].is_passed_by ? 0 : blocks[i].instructions.size();
    return size;
  };
  for (std::size_t i = blocks.size(); i-- > 0;) {
    const auto other = target_of(blocks[i], {"s_cbranch_scc", "s_cbranch_vcc"});
    if (!other || *other <= i + 1) continue;
    const auto end = target_of(blocks[*other - 1], {"s_branch"});
    if (!end || *end <= *other) continue;
    const bool then_is_shorter = size_of(i + 1, *other) < size_of(*other, *end);
    const std::size_t from = then_is_shorter ? i + 1 : *other, to = then_is_shorter ? *other : *end;
    for (std::size_t n = from; n < to; ++n) blocks[n].is_passed_by = true;
  }
}

// Whether lanes leave one by one: the test for the end, in front of the first branch out, is one of lanes.
bool leaves_by_lanes(const std::vector<Block>& blocks, const Loop& loop) {
  for (std::size_t i = loop.first; i <= loop.last; ++i) {
    const auto& instructions = blocks[i].instructions;
    if (std::ranges::any_of(instructions, &Instruction::tests_lanes)) return true;
    const auto is_outside = [&](std::size_t to) { return !loop.contains(to); };
    if (std::ranges::any_of(blocks[i].successors, is_outside)) return false;
  }
  return false;
}

std::vector<Loop> loops_of(const std::vector<Block>& blocks) {
  std::map<std::size_t, std::size_t> ends;  // by the first block: a loop with continue has several branches back
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const std::size_t to : blocks[i].successors) {
      if (to <= i) ends[to] = std::max(ends[to], i);
    }
  }
  std::vector<Loop> loops;
  for (const auto& [first, last] : ends) {
    Loop loop{.first = first, .last = last, .parent = std::nullopt};
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (!loops[i].contains(first)) continue;
      if (!loops[i].contains(last)) throw std::runtime_error("two loops overlap");
      loop.parent = i;
    }
    loop.by_lanes = leaves_by_lanes(blocks, loop);
    loops.push_back(loop);
  }
  return loops;
}

// Which scalar registers hold which word of a descriptor, forward along all ways through the kernel.
class Descriptors {
 public:
  explicit Descriptors(std::vector<Block>& blocks) : blocks_(blocks), entries_(blocks.size()) {
    entries_[0].fill(kUnknown);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < blocks_.size(); ++i) changed = pass(i) || changed;
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) resolve(i);
  }

 private:
  static constexpr std::int64_t kUnknown = -1, kNotYet = -2;
  struct State : std::array<std::int64_t, 128> {  // byte of the set, by register
    State() { fill(kNotYet); }
  };

  void set(State& state, Registers to, std::int64_t first, std::int64_t step) const {
    for (std::size_t i = 0; i < to.count && to.first + i < state.size(); ++i) {
      state[to.first + i] = first < 0 ? kUnknown : first + step * static_cast<std::int64_t>(i);
    }
  }

  void apply(State& state, const Instruction& instruction) const {
    if (instruction.kind == Kind::branch || instruction.kind == Kind::wait || instruction.kind == Kind::hint) return;
    if (!may_write_scalars(instruction.text)) return;
    const std::vector<std::string> words = words_of(instruction.text);
    if (words.size() < 2 || words[0].starts_with("s_cmp") || words[0].starts_with("s_bitcmp")) return;
    const Registers to = scalar_registers(words[1]);
    if (instruction.kind == Kind::constant_load) {
      const auto offset = words.size() > 3 ? words[3] == "null" ? 0 : number_of(words[3]) : std::nullopt;
      return set(state, to, offset ? std::int64_t{*offset} : kUnknown, 4);
    }
    const Registers from = words.size() == 3 ? scalar_registers(words[2]) : Registers{};
    if (words[0].starts_with("s_mov_b") && from.count == to.count && to.count > 0) {
      const State before = state;
      for (std::size_t i = 0; i < to.count; ++i) state.at(to.first + i) = before.at(from.first + i);
      return;
    }
    set(state, to, kUnknown, 0);
    if (has(words[0], "_co_") && words.size() > 2) set(state, scalar_registers(words[2]), kUnknown, 0);
  }

  State after(std::size_t block) const {
    State state = entries_[block];
    for (const Instruction& instruction : blocks_[block].instructions) apply(state, instruction);
    return state;
  }

  bool pass(std::size_t block) {
    if (entries_[block][0] == kNotYet) return false;
    const State state = after(block);
    bool changed = false;
    for (const std::size_t to : blocks_[block].successors) {
      State& entry = entries_[to];
      for (std::size_t i = 0; i < entry.size(); ++i) {
        const std::int64_t met = entry[i] == kNotYet || entry[i] == state[i] ? state[i] : kUnknown;
        changed = changed || met != entry[i];
        entry[i] = met;
      }
    }
    return changed;
  }

  void resolve(std::size_t block) {
    State state = entries_[block];
    for (Instruction& instruction : blocks_[block].instructions) {
      if (instruction.kind == Kind::vector_load || instruction.kind == Kind::scalar_load) {
        instruction.binding = binding_of(state, words_of(instruction.text));
      }
      apply(state, instruction);
    }
  }

  // The descriptor is the operand with four scalar registers behind the target.
  static std::optional<std::uint32_t> binding_of(const State& state, const std::vector<std::string>& words) {
    for (std::size_t i = 2; i < words.size(); ++i) {
      const Registers at = scalar_registers(words[i]);
      if (at.count != 4) continue;
      const std::int64_t first = state.at(at.first);
      for (std::size_t n = 0; n < 4; ++n) {
        if (first < 0 || state.at(at.first + n) != first + 4 * static_cast<std::int64_t>(n)) return std::nullopt;
      }
      if (first % kDescriptorBytes != 0) return std::nullopt;
      return static_cast<std::uint32_t>(first / kDescriptorBytes);
    }
    return std::nullopt;
  }

  std::vector<Block>& blocks_;
  std::vector<State> entries_;
};

}  // namespace

std::optional<std::size_t> MachineCode::loop_of(std::size_t block) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].contains(block)) found = i;  // inner ones come later
  }
  return found;
}

bool MachineCode::is_conditional(std::size_t block) const {
  const std::optional<std::size_t> loop = loop_of(block);
  const std::size_t first = loop ? loops[*loop].first : 0;
  const std::size_t last = loop ? loops[*loop].last : blocks.size() - 1;
  for (std::size_t from = first; from < block; ++from) {
    for (const std::size_t to : blocks[from].successors) {
      if (to > block && to <= last) return true;
    }
  }
  return false;
}

MachineCode machine_code_of(std::string_view assembly) {
  MachineCode code{.blocks = blocks_of(assembly), .loops = {}};
  find_successors(code.blocks);
  code.loops = loops_of(code.blocks);
  for (const Loop& loop : code.loops) {
    for (std::size_t i = loop.first; i <= loop.last; ++i) {
      for (Instruction& instruction : code.blocks[i].instructions) ++instruction.depth;
    }
  }
  pass_by_shorter_sides(code.blocks);
  const Descriptors descriptors(code.blocks);
  return code;
}

}  // namespace rota::test
