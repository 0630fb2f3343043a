#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cache/kv_cache_reference.h"

namespace rota::test {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

TEST(KvCache, AgreesWithPlainListsAfterEveryRandomStep) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  cache::reference::run_random_steps(device, number_from("ROTA_TEST_CACHE_STEPS", 100'000),
                                     number_from("ROTA_TEST_CACHE_SEED", 1));
}

}  // namespace
}  // namespace rota::test
