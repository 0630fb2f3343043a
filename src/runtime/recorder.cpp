#include "runtime/recorder.h"

#include <algorithm>
#include <cstring>

namespace rota::runtime {

Result<Binding> Recorder::upload(std::span<const std::byte> bytes) {
  const std::uint64_t size = core::round_up(bytes.size(), kBindingAlignment);
  if (!upload_block_ || upload_block_->size_bytes() - upload_used_ < size) {
    auto block = device_->uploads().take(device_->backend(), size);
    if (!block) return block.error();
    upload_block_ = std::move(block).value();
    upload_used_ = 0;
  }
  const std::uint64_t begin = std::exchange(upload_used_, upload_used_ + size);
  std::memcpy(upload_block_->host() + begin, bytes.data(), bytes.size());
  return Binding{upload_block_, {begin, begin + size}, {begin, begin + size}, Access::read};
}

Result<std::vector<Binding>> Recorder::scratch(std::initializer_list<std::uint64_t> sizes) {
  std::vector<Binding> bindings;
  std::uint64_t used = 0;
  for (const std::uint64_t bytes : sizes) {
    const core::ByteRange range{used, used + core::round_up(bytes, kBindingAlignment)};
    bindings.push_back({nullptr, range, range, Access::write});
    used = range.end;
  }
  if (!scratch_block_ || scratch_block_->size_bytes() < used) {
    auto block = device_->scratch().take(device_->backend(), used);
    if (!block) return block.error();
    scratch_block_ = std::move(block).value();
  }
  for (Binding& binding : bindings) binding.memory = scratch_block_;
  return bindings;
}

void Recorder::append(const Launch& launch, std::span<const std::byte> params,
                      std::initializer_list<BoundAt> bindings) {
  assert(bindings.size() == launch.kernel.bindings.size());
  Command& command = commands_.add();  // what throws from here on becomes the encoder's error
  command.kernel = &launch.kernel;
  command.constants = launch.constants;
  command.dispatch = launch.dispatch;
  command.params_bytes = static_cast<std::uint32_t>(params.size());
  std::ranges::copy(params, command.params.begin());
  for (const auto& [index, binding] : bindings) {
    assert(index < bindings.size() && command.bindings[index].memory == nullptr);
    command.bindings[index] = binding;
    command.bindings[index].access = launch.kernel.bindings[index];
  }
  command.barrier_before = hazards_.needs_barrier(command.bound());
}

}  // namespace rota::runtime
