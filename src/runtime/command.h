#pragma once

#include <array>
#include <cassert>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/extent.h"
#include "rota/view.h"
#include "runtime/memory.h"

// A dispatch as plain data: what ops write and backends read.

namespace rota::runtime {

inline constexpr std::size_t kMaxBindings = 8;
inline constexpr std::size_t kMaxConstants = 8;
inline constexpr std::size_t kMaxParamsBytes = 128;      // what every Vulkan device can push
inline constexpr std::uint64_t kBindingAlignment = 256;  // the largest that Vulkan lets a device ask for
inline constexpr std::uint64_t kUnitBytes = 16;          // what a GPU loads at once
inline constexpr std::uint32_t kMaxGroups = 65535;       // what every Vulkan device can launch along x

// A kernel translated for devices, made at build time; empty where the build has no such backend.
struct KernelCode {
  std::span<const std::uint32_t> spirv;
};

// What kernels compute in, one for each thread of a device: a thread's stack may be a quarter of it.
inline constexpr std::size_t kWorkerScratchBytes = 640U << 10;
struct alignas(64) WorkerScratch {
  std::byte bytes[kWorkerScratchBytes];
};

// What a CPU kernel gets to see of a command: its share of the items, the bound bytes, and its thread's scratch.
struct CpuCall {
  std::span<const std::uint32_t> constants;
  const void* params;
  std::array<std::byte*, kMaxBindings> bound;
  std::uint64_t first_item, last_item;  // [first, last)
  std::uint64_t next_item;              // where this thread goes on after them, or the last of them
  WorkerScratch* scratch = nullptr;

  // The item whose memory is worth prefetching while `item` is computed; the same one if it is the thread's last.
  std::uint64_t after(std::uint64_t item) const noexcept { return item + 1 < last_item ? item + 1 : next_item; }

  template <class Params>
  const Params& params_as() const noexcept {
    return *static_cast<const Params*>(params);
  }

  // A kernel's state, if no frame should hold it. The one before it is gone; nothing is cleared.
  template <class State, class... Args>
  State& emplace(Args&&... args) const noexcept {
    static_assert(sizeof(State) <= sizeof(WorkerScratch) && alignof(State) <= alignof(WorkerScratch));
    static_assert(std::is_trivially_destructible_v<State>);
    assert(scratch != nullptr);
    return *new (scratch->bytes) State(std::forward<Args>(args)...);
  }
};

// What a kernel does with a binding, by the binding's name in the kernel's params.h.
struct BindingAccess {
  std::uint32_t index;
  Access access;
};

// By index. Does not compile where one is missing.
template <std::size_t kCount>
consteval std::array<Access, kCount> accesses(const BindingAccess (&list)[kCount]) {
  std::array<Access, kCount> by_index{};
  std::array<bool, kCount> named{};
  for (const auto& [index, access] : list) {
    if (named.at(index)) throw "two bindings have one index";
    named[index] = true;
    by_index[index] = access;
  }
  return by_index;
}

struct Kernel {
  std::string_view name;
  KernelCode code;
  std::span<const Access> bindings;  // by index
  void (*cpu)(const CpuCall&) noexcept;
};

// A specialization constant, by its name in the kernel's params.h.
struct Constant {
  std::uint32_t index, value;
};

// All of a kernel's. With the kernel they are the key of a pipeline.
struct Constants {
  std::array<std::uint32_t, kMaxConstants> values{};
  std::uint32_t count = 0;

  constexpr Constants() = default;
  constexpr Constants(std::initializer_list<Constant> list) {
    for (const auto& [index, value] : list) {
      assert(index == count && index < kMaxConstants);
      values[count++] = value;
    }
  }
  friend auto operator<=>(const Constants&, const Constants&) = default;
};

// Memory is kept by the list of commands that names it.
struct Binding {
  Memory* memory = nullptr;
  core::ByteRange bytes;    // starts on kBindingAlignment, ends on a whole word
  core::ByteRange touched;  // the part of it that the kernel may touch
  Access access = Access::read;
};

// A binding and its index in the kernel.
struct BoundAt {
  std::uint32_t index;
  Binding binding;
};

// How much there is to do: `groups` workgroups on a GPU, or `items` that CPU threads may share out.
// A kernel's result must not depend on either.
struct Dispatch {
  std::uint32_t groups = 0;
  std::uint64_t items = 0;
  std::uint64_t item_bytes = 0;  // about what an item moves: too little work is not worth a second thread
};

// Params and bindings are in the list of commands.
struct Command {
  const Kernel* kernel;
  Constants constants;
  bool barrier_before;
  Dispatch dispatch;
  std::span<const std::byte> params;
  std::span<const Binding> bindings;  // by index

  // All items, of memory that the host sees, without scratch. Valid as long as the command is.
  CpuCall cpu_call() const noexcept {
    CpuCall call{.constants = {constants.values.data(), constants.count},
                 .params = params.data(),
                 .bound = {},
                 .first_item = 0,
                 .last_item = dispatch.items,
                 .next_item = dispatch.items - 1};
    std::size_t index = 0;
    for (const Binding& binding : bindings) call.bound[index++] = binding.memory->host() + binding.bytes.begin;
    return call;
  }
};

}  // namespace rota::runtime
