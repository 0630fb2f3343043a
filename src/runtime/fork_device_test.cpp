#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "harness/on_device.h"

// fork() while a device is open: the child has its memory, and none of its threads.

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROTA_TEST_LEAKS 1
#endif
#if __has_feature(thread_sanitizer)
#define ROTA_TEST_TSAN 1
#endif
#endif

namespace {

// What only a thread that the child lacks points to looks like a leak there.
bool is_child = false;

}  // namespace

#if defined(ROTA_TEST_LEAKS)
extern "C" int __lsan_is_turned_off() { return is_child ? 1 : 0; }  // NOLINT(bugprone-reserved-identifier)
#endif

namespace rota::test {
namespace {

constexpr std::uint64_t kDim = 16;
constexpr std::uint64_t kTokens = 4;

// One of each kind, all in use.
struct Objects {
  explicit Objects(Device opened) : device(std::move(opened)) {
    source = device.allocate(kTokens * kDim * sizeof(float)).value();
    const std::vector<float> values(kTokens * kDim, 1.0F);
    source.write(std::as_bytes(std::span(values))).value();
    cache = KvCache::create(device, {.groups = {KvGroup{.layers = {0}, .kv_heads = 1, .head_dim = kDim}},
                                     .max_tokens = 4096,
                                     .max_sequences = 4})
                .value();
    sequence = cache->open_sequence().value();
    Encoder first = device.encoder();
    (void)extend(first, sequence);
    fence = std::move(first).submit().value();
    encoder.emplace(device.encoder());
    step.emplace(extend(*encoder, sequence));
  }

  View tokens() const { return View::token_major(source, DType::f32, {.tokens = kTokens, .heads = 1, .dim = kDim}); }

  KvStep extend(Encoder& in, Sequence which) {
    KvStep made = cache->extend(in, which, kTokens).value();
    made.append(in, 0, tokens(), tokens());
    return made;
  }

  Device device;
  Buffer source;
  std::optional<KvCache> cache;
  Sequence sequence;
  std::optional<Fence> fence;
  std::optional<Encoder> encoder;  // not submitted
  std::optional<KvStep> step;
};

// Taken apart when the process exits: in the child, too.
std::optional<Objects> kept;

class Fork : public OnDevice {
 protected:
  void SetUp() override { kept.emplace(open_another()); }
  void TearDown() override {
    kept.reset();
    OnDevice::TearDown();
  }

  // body() -> bool runs in a child that leaves by exit(). It must end soon, and find all well. Drivers have exit
  // handlers of their own, and Mesa's join threads that a child lacks: there what is ours is dropped, and nothing else
  // runs.
  template <class Body>
  void expect_child_exits(const Body& body) {
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      is_child = true;
      alarm(20);
      const int result = body() ? 0 : 1;
      if (device.info().kind == DeviceKind::cpu) std::exit(result);
      kept.reset();
      std::_Exit(result);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status) << "; 14 is: it hung";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }

  template <class T>
  static bool is_refused(const Result<T>& result) {
    const bool refused = !result.ok() && result.error().code == Errc::device_lost &&
                         result.error().message.find("fork()") != std::string::npos;
    if (!refused) std::fprintf(stderr, "not refused: %s\n", result.ok() ? "fine" : result.error().message.c_str());
    return refused;
  }

  static bool every_call_is_refused(Objects& of) {
    std::vector<std::byte> bytes(16);
    Encoder fresh = of.device.encoder();
    store(fresh, {.pairs = {}, .sequences = {}});
    KvCache& cache = *of.cache;
    bool all = !of.device.info().id.empty() && of.source.size_bytes() > 0 && cache.counters().sequences == 0;
    all &= is_refused(of.device.allocate(64)) && is_refused(of.device.save_pipelines());
    all &= is_refused(of.source.read(bytes)) && is_refused(of.source.write(bytes)) && is_refused(of.fence->wait());
    all &= is_refused(KvCache::create(of.device, cache.spec()));
    all &= is_refused(cache.open_sequence()) && is_refused(cache.close(of.sequence)) &&
           is_refused(cache.length(of.sequence));
    all &= is_refused(cache.wait(of.sequence, std::chrono::milliseconds(1)));
    all &= is_refused(cache.extend(fresh, of.sequence, 1)) && is_refused(cache.fork(fresh, of.sequence));
    all &= is_refused(cache.truncate(fresh, of.sequence, 0)) && is_refused(cache.settle(fresh));
    all &=
        is_refused(cache.view({&of.sequence, 1}, 0)) && is_refused(cache.non_finite()) && is_refused(of.step->view(0));
    of.step->append(*of.encoder, 0, of.tokens(), of.tokens());
    all &= is_refused(fresh.status()) && is_refused(of.encoder->status());
    all &= is_refused(std::move(fresh).submit()) && is_refused(std::move(*of.encoder).submit());
    return all;
  }
};

TEST_F(Fork, AChildThatCallsNothingMayExit) {
  expect_child_exits([] { return true; });
}

TEST_F(Fork, AChildThatCallsIsRefused) {
  expect_child_exits([] { return every_call_is_refused(*kept); });
}

TEST_F(Fork, AChildMayDropWhatItsParentMade) {
  expect_child_exits([] {
    kept.reset();
    return true;
  });
}

TEST_F(Fork, TheParentGoesOn) {
  expect_child_exits([] { return every_call_is_refused(*kept); });
  EXPECT_OK(kept->fence->wait());
  EXPECT_OK(std::move(*kept->encoder).submit());
  EXPECT_EQ(kept->cache->length(kept->sequence).value(), 2 * kTokens);
  EXPECT_EQ(kept->cache->non_finite().value().appended, 0U);
}

// ThreadSanitizer ends a child that starts a thread.
#if !defined(ROTA_TEST_TSAN)
TEST_F(Fork, AChildMayOpenACpuOfItsOwn) {
  expect_child_exits([] {
    Device own = Device::open({.device = "cpu", .threads = 2}).value();
    Buffer words = own.allocate(4096).value();
    const Buffer sums = own.allocate(4).value();
    std::vector<std::uint32_t> numbers(1024);
    std::iota(numbers.begin(), numbers.end(), 0U);
    const WordRange range{words, 0, 4096};
    std::uint32_t sum = 0;
    const bool ran = words.write(std::as_bytes(std::span(numbers))).ok() &&
                     run_on(own, [&](Encoder& encoder) { checksum(encoder, {.of = {&range, 1}, .sums = sums}); }).ok();
    return ran && sums.read(std::as_writable_bytes(std::span(&sum, 1))).ok() && sum == 1024 * 1023 / 2;
  });
}
#endif

// Whatever lock another thread held, and whatever it had half done.
TEST_F(Fork, AChildEndsWhateverOtherThreadsWereDoing) {
  std::move(*kept->encoder).submit().value().wait().value();
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) {
      const Sequence sequence = kept->cache->open_sequence().value();
      Encoder encoder = kept->device.encoder();
      (void)kept->extend(encoder, sequence);
      const Sequence branch = kept->cache->fork(encoder, sequence).value();
      std::move(encoder).submit().value().wait().value();
      kept->cache->close(branch).value();
      kept->cache->close(sequence).value();
      (void)kept->device.allocate(4096).value();
    }
  });
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    expect_child_exits([] {
      return is_refused(kept->device.allocate(64)) && is_refused(kept->cache->open_sequence()) &&
             is_refused(kept->fence->wait()) && kept->cache->counters().sequences == 0;
    });
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace rota::test
