#include "store/opened.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <tuple>

namespace rota::tool {
namespace {

constexpr const char* kHelp = "rota store --help";

// Whoever only looks at a store makes none where there is none.
void check_is_there(const std::string& url) {
  const auto folder = folder_of(url);
  if (!folder || folder->empty()) return;
  std::error_code error;
  if (std::filesystem::is_directory(*folder, error) && !std::filesystem::is_empty(*folder, error)) return;
  const std::string found = error ? error.message() : "there is no store";
  throw Failure(Exit::failed_check, fmt::format("{}: {}; wanted a folder with a page store in it", *folder, found),
                kHelp);
}

PageStore opened(const std::string& url, const StoreOptions& options, OpenedStore::Missing missing) {
  if (missing == OpenedStore::Missing::is_refused) check_is_there(url);
  PageStoreOptions how{.max_bytes = options.max_bytes, .deadline = std::chrono::seconds(10)};
  if (options.timeout) how.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * *options.timeout));
  return answered(PageStore::open(url, how));
}

}  // namespace

Failure store_failure(const Error& error) {
  constexpr std::string_view kUrl = "PageStore::open: url: ";
  const std::string& said = error.message;
  const std::string message = said.starts_with(kUrl) ? "the URL is none: " + said.substr(kUrl.size()) : said;
  switch (error.code) {
    case Errc::invalid_argument: return {Exit::usage, message, kHelp};
    case Errc::unsupported: return {Exit::refused_fallback, message, kHelp};
    default: return {Exit::failed_check, message, kHelp};
  }
}

std::optional<std::string> folder_of(const std::string& url) {
  constexpr std::string_view kFile = "file:";
  if (!url.starts_with(kFile)) return {};
  const std::string path = url.substr(kFile.size());
  return path.starts_with("//") ? path.substr(2) : path;
}

OpenedStore::OpenedStore(const std::string& url, const StoreOptions& options, Missing missing)
    : timeout_(options.timeout), store_(opened(url, options, missing)) {}

std::vector<StoredPage> OpenedStore::pages() const {
  std::vector<StoredPage> all;
  const auto add = [&](const StoredPage& page) -> Status {
    all.push_back(page);
    return {};
  };
  answered(store_.list(add, list_deadline()));
  std::ranges::sort(all, {}, [](const StoredPage& page) { return std::tuple(page.index, page.key); });
  return all;
}

PageStore::Deadline OpenedStore::after(double seconds) const {
  const std::chrono::duration<double> wait(timeout_.value_or(seconds));
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait);
}

}  // namespace rota::tool
