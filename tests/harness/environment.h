#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace rota::test {

// Sanitizers make all work many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// What a variable of the environment asks for.
inline std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

// Of a cache, in tests that take them at random.
inline std::uint64_t random_steps() { return number_from("ROTA_TEST_CACHE_STEPS", kSanitized ? 4'000 : 40'000); }

}  // namespace rota::test
