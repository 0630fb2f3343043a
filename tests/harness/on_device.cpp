#include "harness/on_device.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "core/isa.h"

namespace rota::test {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

void limit_instructions(const std::string& wanted) {
  for (const core::Isa isa : core::kIsas) {
    if (wanted != core::name_of(isa)) continue;
    if (!core::runs_here(isa)) {
      std::cout << wanted << " does not run on this CPU: skipped" << std::endl;
      std::exit(EXIT_SUCCESS);
    }
    core::limit_isa(isa);
  }
}

Device open_checked(ValidationLog& log) {
  limit_instructions(environment("ROTA_TEST_ISA", ""));
  DeviceOptions options = options_under_test();
  options.on_validation_message = [&log](std::string_view message) { log.add(message); };
  Device device = Device::open(options).value();
  const std::string wanted = environment("ROTA_TEST_NAME", "");
  if (device.info().name.find(wanted) == std::string::npos) {
    throw std::runtime_error("the device under test is " + device.info().name + "; wanted " + wanted);
  }
  const std::string subgroup = environment("ROTA_TEST_SUBGROUP", "");
  if (!subgroup.empty() && subgroup != std::to_string(device.info().limits.subgroup_size)) {
    throw std::runtime_error("the subgroup size is " + std::to_string(device.info().limits.subgroup_size) +
                             "; wanted " + subgroup);
  }
  if (!environment("ROTA_TEST_SPARSE", "").empty() && device.info().limits.max_sparse_bytes == 0) {
    throw std::runtime_error("the device under test has no sparse memory");
  }
  return device;
}

}  // namespace

DeviceOptions options_under_test() {
  return {.device = environment("ROTA_TEST_DEVICE", "cpu"),
          .threads = static_cast<std::uint32_t>(std::stoul(environment("ROTA_TEST_THREADS", "0")))};
}

void ValidationLog::add(std::string_view message) {
  // The layers wait at most ten seconds for a thread of their own, which a busy machine may keep from running, and call
  // that "most likely a validation bug" themselves.
  for (const char* const of : {"UNASSIGNED-VkSemaphore-state-timeout", "UNASSIGNED-VkFence-state-timeout"}) {
    if (message.find(of) != std::string_view::npos) return;
  }
  const std::lock_guard lock(mutex_);
  messages_.emplace_back(message);
}

std::vector<std::string> ValidationLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

OnDevice::OnDevice() : device(open_checked(log)) {}

void OnDevice::TearDown() {
  for (const std::string& message : log.take()) ADD_FAILURE() << "validation: " << message;
}

Device OnDevice::open_another() { return open_checked(log); }

namespace {

struct Shared {
  ValidationLog log;
  Device device = open_checked(log);
};

// Closed after the last test, while the driver is still there.
class SharedDevice : public ::testing::Environment {
 public:
  Shared& opened() {
    if (!shared_) shared_ = std::make_unique<Shared>();
    return *shared_;
  }
  void TearDown() override { shared_.reset(); }

 private:
  std::unique_ptr<Shared> shared_;
};

SharedDevice& shared_device = dynamic_cast<SharedDevice&>(*::testing::AddGlobalTestEnvironment(new SharedDevice));

}  // namespace

OnSharedDevice::OnSharedDevice() : device(shared_device.opened().device) {}

void OnSharedDevice::TearDown() {
  for (const std::string& message : shared_device.opened().log.take()) ADD_FAILURE() << "validation: " << message;
}

}  // namespace rota::test
