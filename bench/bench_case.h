#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "rota/device.h"
#include "rota/dtype.h"

// What times an op: calls of it on memory that is filled as a cache's would be. Each op's case lies beside the op;
// `rota bench` and Google Benchmark run the same ones. Cases know the public headers only, as any user does.

namespace rota::bench {

// Calls of one op. Its memory lives as long as `run` does.
struct Work {
  std::uint64_t bytes = 0;  // that one call must read and write
  std::function<void(std::uint64_t calls)> run;
};

// Where a case runs. `take` is asked before memory is allocated, and throws if there shall be less.
struct Place {
  Device device;
  std::function<void(std::uint64_t bytes)> take = [](std::uint64_t) {};
};

// How many copies of a call's memory calls go round through: as much memory as that, or one copy.
std::uint64_t copies_for(std::uint64_t rotated_bytes, std::uint64_t copy_bytes);

// Memory that holds `pattern`, again and again.
Buffer filled(Device& device, std::uint64_t bytes, std::span<const std::byte> pattern);

// Zeros.
Buffer cleared(Device& device, std::uint64_t bytes);

// Normal numbers, the same in every run.
Buffer numbers_in(Device& device, DType dtype, std::uint64_t count);

// Records, submits and waits.
void submit(Device& device, const std::function<void(Encoder&)>& record);

// Calls go round through the copies, whoever asks for them.
std::function<void(std::uint64_t calls)> rotating(Device device, std::uint64_t copies,
                                                  std::function<void(Encoder&, std::uint64_t copy)> record);

}  // namespace rota::bench
