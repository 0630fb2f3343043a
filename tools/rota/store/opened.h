#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "rota/store.h"

// A page store as commands have it: one that answers in time, or a Failure.

namespace rota::tool {

struct StoreOptions {
  std::string action, url, to;
  std::optional<std::uint64_t> limit, max_bytes, page_bytes, pages;
  std::optional<double> timeout;
  Output output = Output::text;
};

// An error of the store's, in the words of a command line.
Failure store_failure(const Error& error);

template <class T>
T answered(Result<T> result) {
  if (!result) throw store_failure(result.error());
  return std::move(result).value();
}
inline void answered(const Status& status) {
  if (!status) throw store_failure(status.error());
}

// PATH of file:PATH.
std::optional<std::string> folder_of(const std::string& url);

class OpenedStore {
 public:
  enum class Missing : std::uint8_t { is_made, is_refused };
  OpenedStore(const std::string& url, const StoreOptions& options, Missing missing);

  const PageStore& store() const noexcept { return store_; }

  // Of a call that begins now: of one page, or one that looks at all of them.
  PageStore::Deadline deadline() const { return after(kCallSeconds); }
  PageStore::Deadline list_deadline() const { return after(kListSeconds); }
  PageStore::Deadline collect_deadline() const { return after(kCollectSeconds); }

  // Every page, with those at the beginning of chains first.
  std::vector<StoredPage> pages() const;

 private:
  static constexpr double kCallSeconds = 60, kListSeconds = 600, kCollectSeconds = 86400;
  PageStore::Deadline after(double seconds) const;

  std::optional<double> timeout_;
  PageStore store_;
};

}  // namespace rota::tool
