#include "c/status.h"

// Compiled into librota-store as well: nothing here is exported, and nothing is kept.

namespace rota::c {
namespace {

static_assert(status_of(Errc::invalid_argument) == ROTA_INVALID_ARGUMENT);
static_assert(status_of(Errc::unsupported) == ROTA_UNSUPPORTED);
static_assert(status_of(Errc::no_device) == ROTA_NO_DEVICE);
static_assert(status_of(Errc::out_of_memory) == ROTA_OUT_OF_MEMORY);
static_assert(status_of(Errc::out_of_pages) == ROTA_OUT_OF_PAGES);
static_assert(status_of(Errc::busy) == ROTA_BUSY);
static_assert(status_of(Errc::device_lost) == ROTA_DEVICE_LOST);
static_assert(status_of(Errc::pipeline_failed) == ROTA_PIPELINE_FAILED);
static_assert(status_of(Errc::io) == ROTA_IO);
static_assert(status_of(Errc::internal) == ROTA_INTERNAL);

}  // namespace

std::string Where::text() const {
  std::string whole;
  if (outer != nullptr) {
    whole = outer->text();
    whole += outer->outer == nullptr ? ": " : ".";
  }
  whole += name;
  if (index != kNoIndex) whole += joined({"[", std::to_string(index), "]"});
  return whole;
}

std::string joined(std::initializer_list<std::string_view> texts) {
  std::string whole;
  for (const std::string_view text : texts) whole += text;
  return whole;
}

Error refuse(const Where& where, std::string_view found, std::string_view wanted, Errc code) {
  std::string message = where.text();
  message += " is ";
  message += found;
  message += "; wanted ";
  message += wanted;
  return {code, std::move(message)};
}

Status check_index(const Where& where, std::size_t index, std::size_t count) {
  if (index < count) return {};
  return refuse(where, std::to_string(index), joined({"less than ", std::to_string(count)}));
}

rota_status told(const Status& status) noexcept {
  if (status) return ROTA_OK;
  rota_set_last_message(status.error().message.c_str());
  return status_of(status.error().code);
}

}  // namespace rota::c
