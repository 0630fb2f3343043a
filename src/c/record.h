#pragma once

#include "c/handles.h"
#include "c/status.h"

namespace rota::c {

// An encoder's lists are empty again when a call ends.
class Emptied {
 public:
  explicit Emptied(Scratch& scratch) noexcept : scratch_(scratch) {}
  ~Emptied() { scratch_.clear(); }
  Emptied(const Emptied&) = delete;
  Emptied& operator=(const Emptied&) = delete;

 private:
  Scratch& scratch_;
};

// A call that records. After the encoder's first error it does nothing but return that; its own error is kept there, so
// that nobody submits a part of what was meant.
template <class Body>
rota_status record(const char* name, rota_encoder* encoder, Body&& body) noexcept {
  return answer([&]() -> Status {
    const Where call{nullptr, name};
    if (Status status = check_handle(call.in("encoder"), encoder); !status) return status;
    if (Status status = encoder->status(); !status) return status;
    const Emptied emptied(encoder->scratch);
    Status done = attempt([&]() -> Status { return body(call); });
    if (done) return encoder->encoder.status();
    encoder->refused = std::move(done);  // whatever follows, such as a lack of memory, it is kept
    return encoder->refused;
  });
}

}  // namespace rota::c
