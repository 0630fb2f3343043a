#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "rota/rota.h"
#include "runtime/selftest.h"

namespace rota::test {

// The device that this run of the tests is about, from the environment that CTest sets:
//   ROTA_TEST_DEVICE    what Device::open takes; "cpu" where it is not set
//   ROTA_TEST_THREADS   size of the CPU's pool
//   ROTA_TEST_NAME      must be part of the device's name, so that no other device stands in for it
//   ROTA_TEST_SUBGROUP  must be its subgroup size
//   ROTA_TEST_SPARSE    if set, it must have sparse memory
DeviceOptions options_under_test();

// Messages of the driver's validation; a test that provokes one takes it out again.
class ValidationLog {
 public:
  void add(std::string_view message);
  std::vector<std::string> take();

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

// A test on the device under test, with validation on. Any message fails the test.
class OnDevice : public ::testing::Test {
 protected:
  OnDevice();
  void TearDown() override;

  ValidationLog log;  // before the devices, which write into it
  Device device;

  Device open_another();
};

// The same with one device for all such tests, for kernels with many variants: each pipeline is built once.
class OnSharedDevice : public ::testing::Test {
 protected:
  OnSharedDevice();
  void TearDown() override;

  Device device;
};

#define ASSERT_OK(expression)                                     \
  do {                                                            \
    const auto& rota_result = (expression);                       \
    ASSERT_TRUE(rota_result.ok()) << rota_result.error().message; \
  } while (false)

#define EXPECT_OK(expression)                                     \
  do {                                                            \
    const auto& rota_result = (expression);                       \
    EXPECT_TRUE(rota_result.ok()) << rota_result.error().message; \
  } while (false)

using runtime::run_on;

// The error must have this code, and a message that contains each of these texts.
template <class T>
void expect_error(const Result<T>& result, Errc code, std::initializer_list<std::string_view> texts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  for (const std::string_view text : texts) {
    EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message << "\n  lacks " << text;
  }
}

}  // namespace rota::test
