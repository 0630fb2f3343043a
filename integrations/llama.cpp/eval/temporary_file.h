#pragma once

#include <string>

namespace rota::eval {

// An empty file in TMPDIR, or in /tmp, which is removed at the end, and also if a signal ends the program.
// There is at most one.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rota::eval
