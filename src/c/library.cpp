#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "rota/c.h"
#include "rota/device.h"
#include "rota/kv_spec.h"
#include "rota/rota.h"

// What the library keeps for each thread, and what it says of itself.

namespace {

constexpr std::string_view kCut = "...";

// No memory is taken for it, and nothing is left to free when a thread ends.
thread_local std::array<char, 1024> last_message{};

// Names of codecs and of errors are literals: C gets them as they are.
static_assert(std::ranges::all_of(rota::kCodecs, [](const rota::NamedCodec& codec) {
  return codec.name.data()[codec.name.size()] == '\0';
}));

}  // namespace

const char* rota_status_name(rota_status status) {
  if (status == ROTA_OK) return "ok";
  if (status > ROTA_INTERNAL) return "unknown";
  return rota::name(static_cast<rota::Errc>(status - 1)).data();
}

const char* rota_last_message(void) { return last_message.data(); }

void rota_set_last_message(const char* message) {
  const char* const whole = message != nullptr ? message : "";
  const std::size_t length = std::strlen(whole), room = last_message.size() - 1;
  const std::size_t size = std::min(length, room);
  std::memmove(last_message.data(), whole, size);  // it may be rota_last_message()
  if (length > room) std::memcpy(last_message.data() + room - kCut.size(), kCut.data(), kCut.size());
  last_message[size] = '\0';
}

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
