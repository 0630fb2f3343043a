#pragma once

#include <cfenv>

// What a thread of the caller's own brings into the library, set aside for a while.

namespace rota::core {

// The default rounding, subnormals and traps while it lives; the caller's, and no flag raised, afterwards.
class DefaultFloats {
 public:
  DefaultFloats() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&callers_); }

  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace rota::core
