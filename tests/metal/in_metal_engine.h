#pragma once

#include <gtest/gtest.h>
#include <rota/metal.h>

#include <memory>
#include <optional>
#include <utility>

#include "engine.h"
#include "harness/engine_calls.h"
#include "harness/on_device.h"
#include "software_metal.h"

namespace rota::mtl {

using test::kBytes;
using test::metal::Engine;
using test::metal::EngineCommands;
using test::metal::EngineMemory;
using test::metal::Kind;
using Memory = std::shared_ptr<EngineMemory>;

inline void expect_no_objects() {
  for (int kind = 0; kind < static_cast<int>(Kind::count); ++kind) {
    if (static_cast<Kind>(kind) == Kind::device) continue;  // the system's own
    EXPECT_EQ(test::metal::live(static_cast<Kind>(kind)), 0U) << "kind " << kind;
  }
  EXPECT_EQ(test::metal::resident_allocations(), 0U);
}

inline Buffer wrapped(const Device& device, const Memory& memory) {
  return metal::wrap(device, {.buffer = memory->buffer(), .keep = memory}).value();
}

class InMetalEngine : public ::testing::Test {
 protected:
  void TearDown() override {
    adopted.reset();
    engine.reset();
    test::metal::drop_barrier(0);
    test::metal::set_options(test::metal::options_of_environment());
    expect_no_objects();
  }

  metal::Adoption adoption() const { return {.device = engine->device(), .queue = engine->queue()}; }
  Device& adopt() {
    adopted = metal::adopt(adoption()).value();
    return *adopted;
  }
  Buffer wrapped(const Memory& memory) { return mtl::wrapped(*adopted, memory); }

  // One call, which the engine has still to commit.
  Fence record_rotation(const EngineCommands& commands, const Buffer& x) {
    Encoder encoder = adopted->encoder();
    test::rotate(encoder, x);
    return metal::record(std::move(encoder), {.commands = commands.buffer(), .encoder = commands.encoder()}).value();
  }

  std::unique_ptr<Engine> engine = std::make_unique<Engine>();
  std::optional<Device> adopted;
};

// What an engine does: fill, rope, copy, attend, copy, all in one encoder.
class Chain {
 public:
  Chain(const Engine& engine, Device& device) : device_(device) {
    for (Memory* const memory : {&x_, &copy_, &out_, &read_back}) *memory = engine.allocate(kBytes);
  }

  // `rope_edges` are those of the first recording.
  Fence record(EngineCommands& commands, metal::Edges rope_edges = metal::Edges::both) {
    const metal::Recording here{.commands = commands.buffer(), .encoder = commands.encoder()};
    metal::Recording first_here = here;
    first_here.edges = rope_edges;
    commands.fill(*x_, 1.5F);
    Encoder first = device_.encoder();
    test::rotate(first, wrapped(device_, x_));
    metal::record(std::move(first), first_here).value().done().value();
    commands.copy(*x_, *copy_);
    Encoder second = device_.encoder();
    // The first thing that it reads is what the engine wrote last.
    test::attend_to(second, wrapped(device_, copy_), wrapped(device_, x_), wrapped(device_, out_));
    Fence fence = metal::record(std::move(second), here).value();
    commands.copy(*out_, *read_back);
    return fence;
  }

  Memory read_back;

 private:
  Device& device_;
  Memory x_, copy_, out_;
};

}  // namespace rota::mtl
