#pragma once

namespace rota::tool {

// While one lives, the first Ctrl-C (SIGINT) only asks for an end, and the second ends the program. Where the signal is
// ignored, as in a job of a script's background, it stays so. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool asked() const noexcept;
};

}  // namespace rota::tool
