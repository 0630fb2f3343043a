#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/environment.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// Several encoders, open at once and ended in any order. Those that follow each other are in kv_cache_calls_test.cpp.

namespace rota::test {
namespace {

constexpr std::uint32_t kLayers = 2;  // 0 is dense, 1 is sealed; each is a group
constexpr std::uint32_t kDim = 16;
constexpr std::uint32_t kPage = 64;
constexpr std::uint32_t kMostTexts = 5;
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

struct TextModel {
  Sequence sequence;
  std::vector<StepPointer> tokens = {};  // where each came from
  StepPointer step = {};                 // the newest, until some of it is taken back
  std::uint64_t sealed = 0;              // pages, at most, when tokens were last taken back
  std::uint64_t restored = 0;            // tokens, at most, that were sealed once and have the codec's error

  bool can_go_on_in(std::uint64_t encoder) const { return !step || step->is_whole_in(encoder); }
  bool lacks(std::uint32_t layer) const { return step && step->appended_in[layer] == kNowhere; }
  std::uint64_t start_of_step() const {
    return static_cast<std::uint64_t>(std::ranges::find(tokens, step) - tokens.begin());
  }
};

struct EncoderModel {
  std::uint64_t number;
  Encoder encoder;
  bool recorded = false;               // anything
  bool changes = false;                // the cache itself, beside appending
  bool broken = false;                 // by an append that was refused
  std::vector<TextModel> before = {};  // its first change
};

// For another reason than want of pages, which may come at any time.
template <class R>
bool is_refused(const R& result) {
  return !result && result.error().code != Errc::out_of_pages;
}

class EncodersMachine {
 public:
  EncodersMachine(Device device, std::uint64_t seed)
      : random_(seed), device_(std::move(device)), tail_(seed % 2 == 0 ? 0 : 70), cache_(create()) {}

  void operate() {
    const std::uint64_t choice = random_() % 100;
    if (choice < 5 || texts_.empty()) return open_text();
    if (choice < 10) return close_text(any_text().sequence);
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
    while (!texts_.empty()) close_text(texts_.front().sequence);
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
    const KvCacheSpec spec{
        .groups = {dense, sealed}, .max_tokens = 900, .max_sequences = kMostTexts, .max_step_tokens = 750};
    return KvCache::create(device_, spec).value();
  }

  TextModel& any_text() { return texts_[random_() % texts_.size()]; }
  TextModel& text_of(Sequence sequence) { return *std::ranges::find(texts_, sequence, &TextModel::sequence); }
  Fate any_fate() { return random_() % 4 == 0 ? Fate::dropped : Fate::submitted; }

  EncoderModel* changing_encoder() {
    const auto found = std::ranges::find(encoders_, true, &EncoderModel::changes);
    return found == encoders_.end() ? nullptr : &*found;
  }
  bool may_change(const EncoderModel& encoder) {
    const EncoderModel* const changing = changing_encoder();
    return !encoder.broken && (changing == nullptr || changing == &encoder);
  }
  void remember(EncoderModel& encoder) {
    if (!encoder.changes) encoder.before = texts_;
    encoder.changes = encoder.recorded = true;
  }

  // A text that is opened or closed stays so, whatever becomes of the encoder that changes the cache.
  void open_text() {
    auto sequence = cache_.open_sequence();
    ASSERT_EQ(sequence.ok(), texts_.size() < kMostTexts);
    if (!sequence) return;
    texts_.push_back({*sequence});
    if (EncoderModel* const changing = changing_encoder()) changing->before.push_back({*sequence});
  }

  void close_text(Sequence sequence) {
    const std::uint64_t used = pages_in_use();
    ASSERT_OK(cache_.close(sequence));
    if (std::ranges::any_of(encoders_, &EncoderModel::recorded)) {
      ASSERT_EQ(pages_in_use(), used) << "though what is recorded may still touch them";
    }
    const auto is_closed = [&](const TextModel& text) { return text.sequence == sequence; };
    std::erase_if(texts_, is_closed);
    if (EncoderModel* const changing = changing_encoder()) std::erase_if(changing->before, is_closed);
  }

  std::uint64_t pages_in_use() const { return cache_.counters().sealed.used + cache_.counters().dense.used; }

  void open_encoder() { encoders_.push_back({++last_encoder_, device_.encoder()}); }

  void extend(EncoderModel& encoder) {
    const TextModel& first = any_text();
    const bool possible = may_change(encoder) && first.can_go_on_in(encoder.number);
    std::vector<KvExtension> extensions;
    for (const TextModel& text : texts_) {
      const bool joins = possible && random_() % 3 == 0 && text.can_go_on_in(encoder.number);
      const std::uint64_t tokens = 1 + random_() % (random_() % 2 == 0 ? 150 : 4);
      if (&text == &first || joins) extensions.push_back({text.sequence, tokens});
    }
    auto step = cache_.extend(encoder.encoder, extensions);
    ASSERT_EQ(is_refused(step), !possible);
    if (!step) return;
    remember(encoder);
    steps_.push_back(std::make_shared<StepModel>(StepModel{std::move(step).value(), encoder.number}));
    for (const KvExtension& extension : extensions) {
      TextModel& text = text_of(extension.sequence);
      text.tokens.insert(text.tokens.end(), std::uint64_t{extension.tokens}, steps_.back());
      text.step = steps_.back();
    }
  }

  void fork(EncoderModel& encoder) {
    TextModel copy = any_text();
    auto child = cache_.fork(encoder.encoder, copy.sequence);
    ASSERT_EQ(is_refused(child), !may_change(encoder) || !copy.can_go_on_in(encoder.number));
    if (!child) return;
    remember(encoder);
    copy.sequence = *child;
    copy.step.reset();
    texts_.push_back(std::move(copy));
  }

  void truncate(EncoderModel& encoder) {
    TextModel& text = any_text();
    const std::uint64_t old = text.tokens.size();
    const std::uint64_t start = text.start_of_step();
    const std::uint64_t length = random_() % 8 == 0 ? random_() % (old + 1) : start - std::min(start, random_() % 60);
    const Status status = cache_.truncate(encoder.encoder, text.sequence, length);
    const bool waits = text.step && text.step->waits_for_another(encoder.number);
    const bool possible = !waits && (length <= start || text.can_go_on_in(encoder.number));
    ASSERT_EQ(is_refused(status), !may_change(encoder) || !possible);
    if (!status) return;
    remember(encoder);
    text.tokens.resize(length);
    if (length < old) text.step.reset();
    const std::uint64_t sealed = std::max(text.sealed, (old - std::min(old, tail_)) / kPage);
    text.restored = length / kPage < sealed ? length : std::min(length, text.restored);
    text.sealed = std::min(sealed, length / kPage);
  }

  // By a text that is in the step again if the encoder is dropped.
  bool is_left_in(const EncoderModel& encoder, const StepPointer& step) {
    return std::ranges::any_of(encoder.before, [&](const TextModel& text) {
      return text.step == step && text_of(text.sequence).step != step;
    });
  }

  void append(EncoderModel& encoder) {
    const auto layer = static_cast<std::uint32_t>(random_() % kLayers);
    std::ranges::shuffle(texts_, random_);
    const auto found = std::ranges::find_if(texts_, [&](const TextModel& text) { return text.lacks(layer); });
    if (found == texts_.end()) return;
    const StepPointer step = found->step;
    const EncoderModel* const changing = changing_encoder();
    const bool left = changing != nullptr && changing != &encoder && is_left_in(*changing, step);
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
    if (!submitted && ended.changes) texts_ = std::move(ended.before);
    compare_texts();
  }

  // Ends all encoders and makes all steps whole, so that everything can be seen.
  void rest() {
    while (!encoders_.empty()) end(0, any_fate());
    open_encoder();
    for (const TextModel& text : texts_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        if (text.lacks(layer)) append_layer(encoders_.back(), *text.step, layer);
      }
    }
    end(0, Fate::submitted);
    compare_pages();
  }

  void compare_texts() {
    for (const TextModel& text : texts_) ASSERT_EQ(cache_.length(text.sequence).value(), text.tokens.size());
    if (changing_encoder() != nullptr) return;  // what it will move is not there yet
    for (const TextModel& text : texts_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        auto view = cache_.view({&text.sequence, 1}, layer);
        ASSERT_EQ(view.ok(), !text.lacks(layer));
        if (!view) continue;
        compare_side(text, layer, view->k, 1);
        compare_side(text, layer, view->v, -1);
      }
    }
  }

  static void compare_side(const TextModel& text, std::uint32_t layer, const KvSideView& side, float sign) {
    const SlotView& dense = side.dense;
    std::vector<float> found(dense.buffer.size_bytes() / sizeof(float));
    dense.buffer.read(std::as_writable_bytes(std::span(found))).value();
    const KvPages& pages = *side.sequences.front();
    const std::uint64_t exact_from = side.sealed ? std::max(pages.sealed_pages * kPage, text.restored) : 0;
    for (std::uint64_t i = exact_from; i < text.tokens.size(); ++i) {
      const StepModel& step = *text.tokens[i];
      if (step.appended_in[layer] != kSubmitted) continue;
      const auto at = dense.offset + pages.places[i / kPage] * dense.page_stride + i % kPage * dense.slot_stride;
      ASSERT_EQ(std::ranges::count(std::span(found).subspan(at, kDim), sign * step.keys[layer]), kDim)
          << "layer " << layer << ", position " << i << " of " << text.tokens.size() << ", found " << found[at];
    }
  }

  void compare_pages() {
    std::array<std::set<std::pair<const void*, std::uint32_t>>, 3> used;  // sealed, dense, sinks
    for (const TextModel& text : texts_) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const KvView view = cache_.view({&text.sequence, 1}, layer).value();
        for (const KvSideView& side : {view.k, view.v}) {
          const KvPages& pages = *side.sequences.front();
          const void* const track = side.dense.buffer.state().get();
          for (std::size_t i = 0; i < pages.places.size(); ++i) {
            used.at(i < pages.sealed_pages ? 0 : 1).emplace(track, pages.places[i]);
          }
          if (pages.sinks) used[2].emplace(track, *pages.sinks);
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
  std::vector<TextModel> texts_;
  std::vector<EncoderModel> encoders_;
  std::vector<StepPointer> steps_;
  std::uint64_t last_encoder_ = 0;
  float last_number_ = 0;
};

TEST(KvCacheEncoders, ManyAtOnceLeaveEveryTextAsItsSubmittedCallsMadeIt) {
  constexpr std::uint64_t kOperationsOfACache = 1000;
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  std::uint64_t left = number_from("ROTA_TEST_CACHE_STEPS", 100'000);
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
