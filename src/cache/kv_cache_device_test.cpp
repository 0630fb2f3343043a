#include <gtest/gtest.h>

#include "cache/kv_cache_reference.h"
#include "harness/on_device.h"

namespace rota::test {
namespace {

class KvCacheOnDevice : public OnDevice {};

TEST_F(KvCacheOnDevice, AgreesWithPlainListsAfterEveryRandomStep) {
  cache::reference::run_random_steps(device, 500, 77);
}

}  // namespace
}  // namespace rota::test
