#pragma once

#include <cstdint>
#include <functional>

namespace rota::test {

// Instructions that a call executes, counted one by one: the CPU traps after each. Where it cannot, the count is that
// of the emulator that the program runs in (count_plugin.cpp).
std::uint64_t count_steps(const std::function<void()>& call);

}  // namespace rota::test
