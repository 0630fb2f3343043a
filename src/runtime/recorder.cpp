#include "runtime/recorder.h"

#include <array>
#include <cstring>

namespace rota::runtime {

// A block returns to its pool when the list of commands is gone.
Result<Memory*> Recorder::take(BlockPool& pool, std::uint64_t bytes) {
  auto block = pool.take(device_->backend(), bytes);
  if (!block) return block.error();
  Memory* const memory = block->get();
  commands_.keep(std::move(block).value());
  return memory;
}

Result<Binding> Recorder::upload(std::span<const std::byte> bytes) {
  const std::uint64_t size = core::round_up(bytes.size(), kBindingAlignment);
  if (upload_block_ == nullptr || upload_block_->size_bytes() - upload_used_ < size) {
    const auto block = take(device_->uploads(), size);
    if (!block) return block.error();
    upload_block_ = *block;
    upload_used_ = 0;
  }
  const std::uint64_t begin = std::exchange(upload_used_, upload_used_ + size);
  std::memcpy(upload_block_->host() + begin, bytes.data(), bytes.size());
  return Binding{upload_block_, {begin, begin + size}, {begin, begin + size}, Access::read};
}

Result<Memory*> Recorder::scratch_of(std::uint64_t bytes) {
  if (scratch_block_ == nullptr || scratch_block_->size_bytes() < bytes) {
    const auto block = take(device_->scratch(), bytes);
    if (!block) return block.error();
    scratch_block_ = *block;
  }
  return scratch_block_;
}

void Recorder::note(const Kernel& kernel, std::span<const Binding> bindings) {
  TraceNote note{.device = {}, .op = kernel.name, .shape = shape_};
  for (const Binding& binding : bindings) note.bytes += binding.touched.size();
  commands_.notes.push_back(note);
}

void Recorder::append(const Launch& launch, std::span<const std::byte> params,
                      std::initializer_list<BoundAt> bindings) {
  assert(bindings.size() == launch.kernel.bindings.size());
  std::array<Binding, kMaxBindings> by_index{};
  for (const auto& [index, binding] : bindings) {
    assert(index < bindings.size() && by_index[index].memory == nullptr);
    by_index[index] = binding;
    by_index[index].access = launch.kernel.bindings[index];
  }
  const std::span<const Binding> bound = std::span(by_index).first(bindings.size());
  if (device_->is_traced()) note(launch.kernel, bound);
  commands_.add({.kernel = &launch.kernel,  // what throws becomes the encoder's error
                 .constants = launch.constants,
                 .barrier_before = hazards_.needs_barrier(bound),
                 .dispatch = launch.dispatch,
                 .params = params,
                 .bindings = bound});
}

}  // namespace rota::runtime
