#include <algorithm>
#include <chrono>

#include "c/handles.h"

// Encoders and fences.

using namespace rota::c;
using rota::Status;

namespace {

// The encoder, once its use has ended.
rota::Encoder taken_from(rota_encoder& handle) noexcept { return std::move(handle.encoder); }

std::chrono::nanoseconds at_most(uint64_t nanoseconds) noexcept {
  using Count = std::chrono::nanoseconds::rep;
  const auto longest = static_cast<uint64_t>(std::chrono::nanoseconds::max().count());
  return std::chrono::nanoseconds(static_cast<Count>(std::min(nanoseconds, longest)));
}

Status finished(const Where& call, const rota_fence* fence, uint64_t nanoseconds, uint32_t* done) {
  if (Status status = check_handle(call.in("fence"), fence); !status) return status;
  if (Status status = check_given(call.in("done"), done); !status) return status;
  const auto found = fence->fence.wait_for(at_most(nanoseconds));
  if (!found) return found.error();
  *done = found.value() ? 1 : 0;
  return {};
}

}  // namespace

rota_status rota_device_encoder(rota_device* device, rota_encoder** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_encoder"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    auto handle = make<rota_encoder>(device->device.encoder());
    if (Status status = handle->status(); !status) return status;
    *result = handle.release();
    return {};
  });
}

rota_status rota_encoder_status(const rota_encoder* encoder) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_encoder_status"};
    if (Status status = check_handle(call.in("encoder"), encoder); !status) return status;
    return encoder->status();
  });
}

rota_status rota_encoder_submit(rota_encoder* encoder, rota_fence** fence) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_encoder_submit"};
    if (Status status = check_handle(call.in("encoder"), encoder); !status) return status;
    rota::Encoder last = taken_from(*encoder);
    if (!encoder->refused) return encoder->refused;
    auto handle = fence != nullptr ? make<rota_fence>() : nullptr;
    auto submitted = std::move(last).submit();
    if (!submitted) return submitted.error();
    if (handle) {
      handle->fence = std::move(submitted).value();
      *fence = handle.release();
    }
    return {};
  });
}

rota_status rota_encoder_prepare(rota_encoder* encoder) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_encoder_prepare"};
    if (Status status = check_handle(call.in("encoder"), encoder); !status) return status;
    rota::Encoder last = taken_from(*encoder);
    if (!encoder->refused) return encoder->refused;
    return std::move(last).prepare();
  });
}

void rota_encoder_destroy(rota_encoder* encoder) { destroy("rota_encoder_destroy", "encoder", encoder); }

rota_status rota_fence_wait(const rota_fence* fence) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_fence_wait"};
    if (Status status = check_handle(call.in("fence"), fence); !status) return status;
    return fence->fence.wait();
  });
}

rota_status rota_fence_wait_for(const rota_fence* fence, uint64_t nanoseconds, uint32_t* done) {
  return answer([&] { return finished(Where{nullptr, "rota_fence_wait_for"}, fence, nanoseconds, done); });
}

rota_status rota_fence_done(const rota_fence* fence, uint32_t* done) {
  return answer([&] { return finished(Where{nullptr, "rota_fence_done"}, fence, 0, done); });
}

void rota_fence_destroy(rota_fence* fence) { destroy("rota_fence_destroy", "fence", fence); }
