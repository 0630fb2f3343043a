#pragma once

#include <stdexcept>
#include <string>

namespace rota::eval {

enum class Exit { failed = 1, usage = 2, refused = 4 };

// Ends the program with one sentence.
class Failure : public std::runtime_error {
 public:
  Failure(Exit exit, const std::string& sentence) : std::runtime_error(sentence), exit_(exit) {}
  Exit exit() const noexcept { return exit_; }

 private:
  Exit exit_;
};

}  // namespace rota::eval
