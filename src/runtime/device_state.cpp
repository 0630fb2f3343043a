#include "runtime/device_state.h"

#include "core/error.h"

namespace rota::runtime {

Status DeviceState::check_here(std::string_view op) const {
  if (is_here()) return {};
  return Error{
      Errc::device_lost,
      core::text("{}: {} was opened before fork(), in the parent process; a child opens its own", op, info().id)};
}

Result<std::uint64_t> DeviceState::submit(CommandList commands) {
  Batch batch{std::move(commands), {}};
  batch.pipelines.reserve(batch.commands.size());
  for (const Command& command : batch.commands.all()) {
    auto pipeline = registry_.pipeline(*backend_, *command.kernel, command.constants);
    if (!pipeline) return pipeline.error();
    batch.pipelines.push_back(std::move(pipeline).value());
  }
  std::vector<Binding> bindings;
  for (const Command& command : batch.commands.all()) {
    bindings.insert(bindings.end(), command.bound().begin(), command.bound().end());
  }
  auto prepared = backend_->prepare(std::move(batch));
  if (!prepared) return prepared.error();

  const auto ticket = enqueue(std::move(prepared).value(), bindings);
  if (ticket) backend_->submitted();
  return ticket;
}

Result<std::uint64_t> DeviceState::enqueue(std::unique_ptr<PreparedBatch> batch, std::span<const Binding> bindings) {
  const std::lock_guard lock(submitting_);
  const std::uint64_t ticket = last_ticket_ + 1;
  if (Status status = backend_->enqueue(std::move(batch), ticket); !status) return status.error();
  last_ticket_ = ticket;
  for (const Binding& binding : bindings) {
    Memory& memory = *binding.memory;
    (binding.access == Access::write ? memory.last_write_ticket : memory.last_read_ticket) = ticket;
  }
  return ticket;
}

}  // namespace rota::runtime
