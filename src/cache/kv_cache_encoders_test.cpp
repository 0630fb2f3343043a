#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/environment.h"
#include "harness/on_device.h"
#include "rota/rota.h"
#include "runtime/inside.h"

// Several encoders, open at once and ended in any order. Those that follow each other are in kv_cache_calls_test.cpp.

namespace rota::test {
namespace {

constexpr std::uint32_t kLayers = 2;  // 0 is dense, 1 is sealed; each is a group
constexpr std::uint32_t kDim = 16;
constexpr std::uint32_t kPage = 64;
constexpr std::uint32_t kMostSequences = 5;
constexpr std::size_t kMostEncoders = 4;

// Where something was recorded: in an open encoder, by its number, or
constexpr std::uint64_t kNowhere = 0;
constexpr std::uint64_t kSubmitted = ~std::uint64_t{0};

enum class Fate : std::uint8_t { submitted, dropped };

struct StepModel {
  KvStep step;
  std::uint64_t extended_in;
  std::array<std::uint64_t, kLayers> appended_in{};
  std::array<float, kLayers> keys{};  // one number for all of a layer; its values are the same, negative

  bool is_whole_in(std::uint64_t encoder) const {
    return std::ranges::all_of(appended_in, [&](auto in) { return in == kSubmitted || in == encoder; });
  }
  bool waits_for_another(std::uint64_t encoder) const {
    const std::set<std::uint64_t> known{kNowhere, kSubmitted, encoder};
    return std::ranges::any_of(appended_in, [&](auto in) { return !known.contains(in); });
  }
};
using StepPointer = std::shared_ptr<StepModel>;

struct SequenceModel {
  Sequence sequence;
  std::vector<StepPointer> tokens = {};  // where each came from
  StepPointer step = {};                 // the newest, until some of it is taken back
  std::uint64_t sealed = 0;              // pages, at most, when tokens were last taken back
  std::uint64_t restored = 0;            // tokens, at most, that were sealed once and have the codec's error
  std::uint64_t changed_in = kNowhere;   // the open encoder whose calls named it
  std::shared_ptr<const SequenceModel> before = {};  // as it was before that; none if it was forked there

  bool can_go_on_in(std::uint64_t encoder) const { return !step || step->is_whole_in(encoder); }
  bool lacks(std::uint32_t layer) const { return step && step->appended_in[layer] == kNowhere; }
  std::uint64_t start_of_step() const {
    return static_cast<std::uint64_t>(std::ranges::find(tokens, step) - tokens.begin());
  }
};

struct EncoderModel {
  std::uint64_t number;
  Encoder encoder;
  bool recorded = false;  // anything
  bool changes = false;   // the cache itself, beside appending
  bool broken = false;    // by an append that was refused
};

// What a call must answer, unless pages are short, which may be at any time.
struct Answer {
  bool must_refuse = false;
  bool may_be_busy = false;  // another encoder may have settled a sequence on the way
  bool must_be_busy = false;

  template <class R>
  void expect(const R& result) const {
    const std::string said = result ? "accepted" : result.error().message;
    const bool lacks_pages = said.find("pages of the") != std::string::npos;
    const bool refused = !result && !lacks_pages && result.error().code != Errc::out_of_pages;
    const bool busy = refused && result.error().code == Errc::busy;
    ASSERT_TRUE(refused || !must_refuse) << said;
    ASSERT_TRUE(busy || !must_be_busy) << said;
    ASSERT_TRUE(must_refuse || !refused || (busy && may_be_busy)) << said;
  }
};

class EncodersMachine {
 public:
  EncodersMachine(Device device, std::uint64_t seed)
      : random_(seed), device_(std::move(device)), tail_(seed % 2 == 0 ? 0 : 70), cache_(create()) {}

  void operate() {
    const std::uint64_t choice = random_() % 100;
    if (choice < 5 || sequences_.empty()) return open_sequence();
    if (choice < 10) return close_sequence(any_sequence().sequence);
    if (choice < 11) return rest();
    if (encoders_.empty() || (choice < 25 && encoders_.size() < kMostEncoders)) return open_encoder();
    const std::size_t index = random_() % encoders_.size();
    EncoderModel& encoder = encoders_[index];
    if (choice < 58) return append(encoder);
    if (choice < 74) return extend(encoder);
    if (choice < 79) return fork(encoder);
    if (choice < 86) return truncate(encoder);
    end(index, any_fate());
  }

  void finish() {
    rest();
    while (!sequences_.empty()) close_sequence(sequences_.front().sequence);
    compare_pages();
  }

 private:
  KvCache create() {
    const KvGroup dense{
        .layers = {0}, .kv_heads = 1, .head_dim = kDim, .k = DType::f32, .v = DType::f32, .page = kPage};
    KvGroup sealed = dense;
    sealed.layers = {1};
    sealed.k = sealed.v = turbo(4);
    sealed.dense = DType::f32;
    sealed.tail = tail_;
    const KvCacheSpec spec{.groups = {dense, sealed},
                           .max_tokens = 900,
                           .max_sequences = kMostSequences,
                           .max_step_tokens = 750,
                           .layer_order = LayerOrder::together};
    return KvCache::create(device_, spec).value();
  }

  SequenceModel& any_sequence() { return sequences_[random_() % sequences_.size()]; }
  SequenceModel& sequence_of(Sequence sequence) {
    return *std::ranges::find(sequences_, sequence, &SequenceModel::sequence);
  }
  Fate any_fate() { return random_() % 4 == 0 ? Fate::dropped : Fate::submitted; }

  // A sequence that another encoder has changed waits for it, one that has a page due may do so.
  Answer answer_for(const EncoderModel& encoder, const SequenceModel& sequence) const {
    const bool held = sequence.changed_in != kNowhere && sequence.changed_in != encoder.number;
    const bool others_change = std::ranges::any_of(
        encoders_, [&](const EncoderModel& other) { return other.changes && other.number != encoder.number; });
    return {.must_refuse = encoder.broken || held,
            .may_be_busy = others_change && sequence.tokens.size() >= tail_ + kPage,
            .must_be_busy = held && !encoder.broken};
  }
  void remember(EncoderModel& encoder, SequenceModel& sequence) {
    encoder.changes = encoder.recorded = true;
    if (sequence.changed_in == encoder.number) return;
    sequence.before = std::make_shared<const SequenceModel>(sequence);
    sequence.changed_in = encoder.number;
  }

  // A sequence that is opened or closed stays so, whatever becomes of the encoder that changes the cache.
  void open_sequence() {
    auto sequence = cache_.open_sequence();
    ASSERT_EQ(sequence.ok(), sequences_.size() < kMostSequences);
    if (!sequence) return;
    sequences_.push_back({*sequence});
  }

  void close_sequence(Sequence sequence) {
    const std::uint64_t used = pages_in_use();
    ASSERT_OK(cache_.close(sequence));
    if (std::ranges::any_of(encoders_, &EncoderModel::recorded)) {
      ASSERT_EQ(pages_in_use(), used) << "though what is recorded may still touch them";
    }
    std::erase_if(sequences_, [&](const SequenceModel& model) { return model.sequence == sequence; });
  }

  std::uint64_t pages_in_use() const { return cache_.counters().sealed.used + cache_.counters().dense.used; }

  void open_encoder() { encoders_.push_back({++last_encoder_, device_.encoder()}); }

  void extend(EncoderModel& encoder) {
    const SequenceModel& first = any_sequence();
    Answer answer = answer_for(encoder, first);
    if (!first.can_go_on_in(encoder.number)) answer.must_refuse = true;
    std::vector<KvExtension> extensions;
    for (const SequenceModel& sequence : sequences_) {
      const Answer other = answer_for(encoder, sequence);
      const bool may_join = !answer.must_refuse && !other.must_refuse && sequence.can_go_on_in(encoder.number);
      const bool joins = may_join && random_() % 3 == 0;
      const std::uint64_t tokens = 1 + random_() % (random_() % 2 == 0 ? 150 : 4);
      if (&sequence == &first || joins) extensions.push_back({sequence.sequence, tokens});
      if (joins) answer.may_be_busy = answer.may_be_busy || other.may_be_busy;
    }
    auto step = cache_.extend(encoder.encoder, extensions);
    answer.expect(step);
    if (!step) return;
    steps_.push_back(std::make_shared<StepModel>(StepModel{std::move(step).value(), encoder.number}));
    for (const KvExtension& extension : extensions) {
      SequenceModel& sequence = sequence_of(extension.sequence);
      remember(encoder, sequence);
      sequence.tokens.insert(sequence.tokens.end(), std::uint64_t{extension.tokens}, steps_.back());
      sequence.step = steps_.back();
    }
  }

  void fork(EncoderModel& encoder) {
    SequenceModel& sequence = any_sequence();
    Answer answer = answer_for(encoder, sequence);
    if (!sequence.can_go_on_in(encoder.number)) answer = {.must_refuse = true};
    auto child = cache_.fork(encoder.encoder, sequence.sequence);
    answer.expect(child);
    if (!child) return;
    remember(encoder, sequence);
    SequenceModel copy = sequence;
    copy.sequence = *child;
    copy.step.reset();
    copy.before.reset();
    sequences_.push_back(std::move(copy));
  }

  void truncate(EncoderModel& encoder) {
    SequenceModel& sequence = any_sequence();
    const std::uint64_t old = sequence.tokens.size();
    const std::uint64_t start = sequence.start_of_step();
    const std::uint64_t length = random_() % 8 == 0 ? random_() % (old + 1) : start - std::min(start, random_() % 60);
    Answer answer = answer_for(encoder, sequence);
    const bool waits = sequence.step && sequence.step->waits_for_another(encoder.number);
    const bool possible = !waits && (length <= start || sequence.can_go_on_in(encoder.number));
    if (!possible) answer.must_refuse = true;
    const Status status = cache_.truncate(encoder.encoder, sequence.sequence, length);
    answer.expect(status);
    if (!status) return;
    remember(encoder, sequence);
    sequence.tokens.resize(length);
    if (length < old) sequence.step.reset();
    const std::uint64_t sealed = std::max(sequence.sealed, (old - std::min(old, tail_)) / kPage);
    sequence.restored = length / kPage < sealed ? length : std::min(length, sequence.restored);
    sequence.sealed = std::min(sealed, length / kPage);
  }

  // By a sequence that is in the step again if its encoder is dropped.
  bool is_left_by_another(const EncoderModel& encoder, const StepPointer& step) const {
    return std::ranges::any_of(sequences_, [&](const SequenceModel& sequence) {
      return sequence.changed_in != encoder.number && sequence.before && sequence.before->step == step &&
             sequence.step != step;
    });
  }

  void append(EncoderModel& encoder) {
    const auto layer = static_cast<std::uint32_t>(random_() % kLayers);
    std::ranges::shuffle(sequences_, random_);
    const auto found =
        std::ranges::find_if(sequences_, [&](const SequenceModel& sequence) { return sequence.lacks(layer); });
    if (found == sequences_.end()) return;
    const StepPointer step = found->step;
    const bool left = is_left_by_another(encoder, step);
    const std::uint64_t begun_in = step->extended_in;
    const bool possible = !encoder.broken && !left && (begun_in == kSubmitted || begun_in == encoder.number);
    if (!possible && random_() % 8 != 0) return;  // rarely, since it spoils the encoder
    append_layer(encoder, *step, layer);
    encoder.broken = !encoder.encoder.status();
    ASSERT_EQ(encoder.broken, !possible);
  }

  void append_layer(EncoderModel& encoder, StepModel& step, std::uint32_t layer) {
    const float number = ++last_number_;
    const auto all = [&](float value) {
      const std::vector<float> values(kDim, value);
      Buffer buffer = device_.allocate(kDim * sizeof(float)).value();
      buffer.write(std::as_bytes(std::span(values))).value();
      return View{buffer, DType::f32, {.tokens = step.step.positions().size(), .heads = 1, .dim = kDim}};
    };
    step.step.append(encoder.encoder, layer, all(number), all(-number));
    if (!encoder.encoder.status()) return;
    encoder.recorded = true;
    step.appended_in[layer] = encoder.number;
    step.keys[layer] = number;
  }

  void end(std::size_t index, Fate fate) {
    EncoderModel ended = std::move(encoders_[index]);
    encoders_.erase(encoders_.begin() + static_cast<std::ptrdiff_t>(index));
    const bool submitted = fate == Fate::submitted && !ended.broken;
    if (fate == Fate::submitted) {
      ASSERT_EQ(std::move(ended.encoder).submit().ok(), submitted);
    } else {
      const Encoder dropped = std::move(ended.encoder);
    }
    for (const StepPointer& step : steps_) {
      std::ranges::replace(step->appended_in, ended.number, submitted ? kSubmitted : kNowhere);
      if (step->extended_in == ended.number) step->extended_in = kSubmitted;
    }
    for (SequenceModel& sequence : sequences_) {
      if (sequence.changed_in != ended.number) continue;
      if (submitted) {
        sequence.changed_in = kNowhere;
        sequence.before.reset();
      } else if (sequence.before) {
        sequence = SequenceModel(*sequence.before);
      }
    }
    std::erase_if(sequences_,
                  [&](const SequenceModel& sequence) { return sequence.changed_in == ended.number; });  // forked there
    compare_sequences();
  }

  // Ends all encoders and makes all steps whole, so that everything can be seen.
  void rest() {
    while (!encoders_.empty()) end(0, any_fate());
    open_encoder();
    for (const SequenceModel& sequence : sequences_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        if (sequence.lacks(layer)) append_layer(encoders_.back(), *sequence.step, layer);
      }
    }
    end(0, Fate::submitted);
    compare_pages();
  }

  void compare_sequences() {
    for (const SequenceModel& sequence : sequences_)
      ASSERT_EQ(cache_.length(sequence.sequence).value(), sequence.tokens.size());
    if (std::ranges::any_of(encoders_, &EncoderModel::changes)) return;  // what it will move is not there yet
    for (const SequenceModel& sequence : sequences_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        auto view = cache_.view({&sequence.sequence, 1}, layer);
        ASSERT_EQ(view.ok(), !sequence.lacks(layer));
        if (!view) continue;
        compare_side(sequence, layer, view->k, 1);
        compare_side(sequence, layer, view->v, -1);
      }
    }
  }

  static void compare_side(const SequenceModel& sequence, std::uint32_t layer, const KvSideView& side, float sign) {
    const SlotView& dense = side.dense;
    std::vector<float> found(dense.buffer.size_bytes() / sizeof(float));
    dense.buffer.read(std::as_writable_bytes(std::span(found))).value();
    const KvPages& pages = *side.sequences.front();
    const std::uint64_t exact_from = side.sealed ? std::max(pages.sealed_pages * kPage, sequence.restored) : 0;
    for (std::uint64_t i = exact_from; i < sequence.tokens.size(); ++i) {
      const StepModel& step = *sequence.tokens[i];
      if (step.appended_in[layer] != kSubmitted) continue;
      const auto at = dense.offset + pages.page_table[i / kPage] * dense.page_stride + i % kPage * dense.slot_stride;
      ASSERT_EQ(std::ranges::count(std::span(found).subspan(at, kDim), sign * step.keys[layer]), kDim)
          << "layer " << layer << ", position " << i << " of " << sequence.tokens.size() << ", found " << found[at];
    }
  }

  void compare_pages() {
    std::array<std::set<std::pair<const void*, std::uint32_t>>, 3> used;  // sealed, dense, sinks
    for (const SequenceModel& sequence : sequences_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const KvView view = cache_.view({&sequence.sequence, 1}, layer).value();
        for (const KvSideView& side : {view.k, view.v}) {
          const KvPages& pages = *side.sequences.front();
          const void* const group_side = runtime::Inside::of(side.dense.buffer).get();
          for (std::size_t i = 0; i < pages.page_table.size(); ++i) {
            used.at(i < pages.sealed_pages ? 0 : 1).emplace(group_side, pages.page_table[i]);
          }
          if (pages.sinks) used[2].emplace(group_side, *pages.sinks);
        }
      }
    }
    const KvCounters counters = cache_.counters();
    ASSERT_EQ(counters.sealed.used, used[0].size());
    ASSERT_EQ(counters.dense.used, used[1].size());
    ASSERT_EQ(counters.sinks.used, used[2].size());
  }

  std::mt19937_64 random_;
  Device device_;
  std::uint64_t tail_;
  KvCache cache_;
  std::vector<SequenceModel> sequences_;
  std::vector<EncoderModel> encoders_;
  std::vector<StepPointer> steps_;
  std::uint64_t last_encoder_ = 0;
  float last_number_ = 0;
};

// As many threads as an engine may have: each goes on with a sequence of its own, in a cache that all share.
TEST(KvCacheEncoders, ThreadsThatExtendTheirOwnSequencesSeldomWaitForEachOther) {
  constexpr int kThreads = 8;
  constexpr std::uint64_t kTokens = 600;  // eight pages come due in each
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  KvGroup group{.layers = {0}, .kv_heads = 1, .head_dim = kDim, .k = turbo(4), .v = turbo(4), .page = kPage};
  KvCache cache =
      KvCache::create(
          device,
          {.groups = {group}, .max_tokens = kThreads * kTokens, .max_sequences = kThreads, .max_step_tokens = kThreads})
          .value();
  Buffer zeros = device.allocate(kDim * sizeof(float)).value();
  zeros.write(std::vector<std::byte>(zeros.size_bytes())).value();
  const View x{zeros, DType::f32, {.tokens = 1, .heads = 1, .dim = kDim}};
  std::atomic<std::uint64_t> busy{0};
  std::atomic<std::uint64_t> wrong{0};
  const auto decode = [&](Sequence own) {
    for (std::uint64_t token = 0; token < kTokens;) {
      Encoder encoder = device.encoder();
      auto step = cache.extend(encoder, own, 1);
      if (!step) {
        wrong += step.error().code == Errc::busy ? 0 : 1;
        ++busy;
        wrong += cache.wait(own, std::chrono::seconds(60)).ok() ? 0 : 1;
        continue;
      }
      step->append(encoder, 0, x, x);
      wrong += std::move(encoder).submit().ok() ? 0 : 1;
      ++token;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(decode, cache.open_sequence().value());
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_LE(busy, kThreads * kTokens) << "only where another thread settles a page on the way";
  EXPECT_EQ(cache.counters().tokens, kThreads * kTokens);
  RecordProperty("busy", std::to_string(busy));
}

TEST(KvCacheEncoders, ManyAtOnceLeaveEverySequenceAsItsSubmittedCallsMadeIt) {
  constexpr std::uint64_t kOperationsOfACache = 1000;
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  std::uint64_t left = random_steps();
  for (std::uint64_t seed = number_from("ROTA_TEST_CACHE_SEED", 1); left > 0 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EncodersMachine machine(device, seed);
    const std::uint64_t operations = std::min(left, kOperationsOfACache);
    for (std::uint64_t i = 0; i < operations && !HasFailure(); ++i) machine.operate();
    if (!HasFailure()) machine.finish();
    left -= operations;
  }
}

}  // namespace
}  // namespace rota::test
