#include "c/status.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rota/device.h"
#include "rota/kv_spec.h"
#include "rota/rota.h"

namespace rota::c {
namespace {

constexpr std::string_view kCut = "...";

// No memory is taken for it, and nothing is left to free when a thread ends.
thread_local std::array<char, 1024> last_message{};

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

// Names of codecs and of errors are literals: C gets them as they are.
static_assert(std::ranges::all_of(kCodecs, [](const NamedCodec& codec) {
  return codec.name.data()[codec.name.size()] == '\0';
}));

void keep(std::string_view message) noexcept {
  const std::size_t room = last_message.size() - 1;
  const std::size_t size = std::min(message.size(), room);
  std::memcpy(last_message.data(), message.data(), size);
  if (message.size() > room) std::memcpy(last_message.data() + room - kCut.size(), kCut.data(), kCut.size());
  last_message[size] = '\0';
}

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
  keep(status.error().message);
  return status_of(status.error().code);
}

}  // namespace rota::c

const char* rota_status_name(rota_status status) {
  if (status == ROTA_OK) return "ok";
  if (status > ROTA_INTERNAL) return "unknown";
  return rota::name(static_cast<rota::Errc>(status - 1)).data();
}

const char* rota_last_message(void) { return rota::c::last_message.data(); }

rota_status rota_version(uint32_t* major, uint32_t* minor, uint32_t* patch) {
  const rota::Version version = rota::version();
  if (major != nullptr) *major = version.major;
  if (minor != nullptr) *minor = version.minor;
  if (patch != nullptr) *patch = version.patch;
  return ROTA_OK;
}

const char* rota_version_text(void) { return rota::version().text.data(); }

size_t rota_codec_count(void) { return rota::kCodecs.size(); }

const char* rota_codec_name(size_t index) {
  return index < rota::kCodecs.size() ? rota::kCodecs[index].name.data() : nullptr;
}
