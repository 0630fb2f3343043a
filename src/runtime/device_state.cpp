#include "runtime/device_state.h"

#include "core/error.h"

namespace rota::runtime {

Status DeviceState::check_here(std::string_view op) const {
  if (is_here()) return {};
  return Error{
      Errc::device_lost,
      core::text("{}: {} was opened before fork(), in the parent process; a child opens its own", op, info().id)};
}

Result<std::vector<std::shared_ptr<const Pipeline>>> DeviceState::pipelines(const CommandList& commands) {
  std::vector<std::shared_ptr<const Pipeline>> pipelines;
  pipelines.reserve(commands.size());
  for (const Command& command : commands.all()) {
    auto pipeline = registry_.pipeline(*backend_, *command.kernel, command.constants);
    if (!pipeline) return pipeline.error();
    pipelines.push_back(std::move(pipeline).value());
  }
  return pipelines;
}

Result<std::uint64_t> DeviceState::submit(CommandList commands, const Placement* placement) {
  auto built = pipelines(commands);
  if (!built) return built.error();
  Batch batch{std::move(commands), std::move(built).value(), placement, {}};
  if (trace_) {
    batch.trace = std::make_shared<BatchTrace>(trace_, info().id, std::move(batch.commands.notes));
    batch.trace->number(++traced_batches_);
  }
  // Of another order the backend itself knows which memory is in use: a memory's tickets stand for all lower ones.
  const bool in_order = placement == nullptr || placement->in_order();
  const std::shared_ptr<const UsedMemories> memories = in_order ? batch.commands.memories() : nullptr;
  auto prepared = backend_->prepare(std::move(batch));
  if (!prepared) return prepared.error();

  const auto ticket = enqueue(std::move(prepared).value(), memories.get());
  if (ticket) backend_->submitted();
  return ticket;
}

Result<std::uint64_t> DeviceState::enqueue(std::unique_ptr<PreparedBatch> batch, const UsedMemories* memories) {
  const std::lock_guard lock(submitting_);
  const std::uint64_t ticket = last_ticket_ + 1;
  if (Status status = backend_->enqueue(std::move(batch), ticket); !status) return status.error();
  last_ticket_ = ticket;
  if (memories == nullptr) return ticket;
  for (const auto& [memory, read, written] : *memories) {
    if (read) memory->last_read_ticket = ticket;
    if (written) memory->last_write_ticket = ticket;
  }
  return ticket;
}

}  // namespace rota::runtime
