#include <rota/rota.h>

#include <random>

#include "c/world.h"

// Each op by C and by C++ on the same numbers, with every member other than its default: the same bytes.

namespace c_test {
namespace {

constexpr size_t kFloats = 1U << 16;

// The same memory twice: a buffer of C's device and one of C++'s.
class Twice {
 public:
  Twice() : cpp_device(rota::Device::open({.threads = 2}).value()) {
    std::vector<float> numbers(kFloats);
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& number : numbers) number = uniform(random);
    cpp = cpp_device.allocate(kFloats * 4).value();
    cpp.write(std::as_bytes(std::span(numbers))).value();
    rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
    options.threads = 2;
    must(rota_device_open(&options, &c_device));
    must(rota_device_allocate(c_device, kFloats * 4, &c));
    must(rota_buffer_write(c, numbers.data(), kFloats * 4, 0));
    must(rota_device_encoder(c_device, &encoder));
  }
  ~Twice() {
    rota_encoder_destroy(encoder);
    rota_buffer_destroy(c);
    rota_device_destroy(c_device);
  }
  Twice(const Twice&) = delete;
  Twice& operator=(const Twice&) = delete;

  // Runs both, and compares all bytes; they are not what they were before.
  void same(rota::Encoder cpp_encoder) {
    std::vector<uint32_t> before(kFloats), by_c(kFloats), by_cpp(kFloats);
    cpp.read(std::as_writable_bytes(std::span(before))).value();
    std::move(cpp_encoder).submit().value().wait().value();
    must(rota_encoder_submit(encoder, nullptr));
    must(rota_buffer_read(c, by_c.data(), kFloats * 4, 0));
    cpp.read(std::as_writable_bytes(std::span(by_cpp))).value();
    EXPECT_NE(before, by_cpp) << "the op wrote nothing";
    EXPECT_TRUE(by_c == by_cpp);
  }

  rota_view view(uint64_t offset, uint64_t tokens, uint64_t heads, uint64_t dim) const {
    return {sizeof(rota_view), c, ROTA_F32, 0, tokens, heads, dim, offset, heads * dim * 2, dim * 2, 2};
  }
  // The same, with gaps everywhere.
  rota::MutView cpp_view(uint64_t offset, uint64_t tokens, uint64_t heads, uint64_t dim) const {
    return {.buffer = cpp,
            .dtype = rota::DType::f32,
            .shape = {tokens, heads, dim},
            .offset = offset,
            .token_stride = heads * dim * 2,
            .head_stride = dim * 2,
            .dim_stride = 2};
  }
  rota_slot_view slots(uint64_t offset) const {
    return {sizeof(rota_slot_view), c, ROTA_BF16, 0, 3, 128, 2, 16, offset, 128 * 2 * 16, 16, 128 * 16, 1};
  }
  rota::SlotView cpp_slots(uint64_t offset) const {
    return {.buffer = cpp,
            .dtype = rota::DType::bf16,
            .shape = {3, 128, 2, 16},
            .offset = offset,
            .page_stride = 128 * 2 * 16,
            .slot_stride = 16,
            .head_stride = 128 * 16,
            .dim_stride = 1};
  }

  rota::Device cpp_device;
  rota::Buffer cpp;
  rota_device* c_device = nullptr;
  rota_buffer* c = nullptr;
  rota_encoder* encoder = nullptr;
};

constexpr uint32_t kPages[] = {2, 0};
constexpr uint64_t kCounter = kFloats * 4 - 64;

TEST(COps, Store) {
  Twice twice;
  const rota_view from = twice.view(8, 5, 2, 16);
  const rota_slot_view to = twice.slots(20'000);
  rota_store_pair pair = ROTA_STORE_PAIR_INIT;
  pair.from = &from;
  pair.to = &to;
  rota_token_run runs[2] = {ROTA_TOKEN_RUN_INIT, ROTA_TOKEN_RUN_INIT};
  runs[0].tokens = 3;
  runs[0].position = 127;
  runs[0].capacity = 256;
  runs[0].page_table = kPages;
  runs[0].page_count = 2;
  runs[0].when_full = ROTA_WHEN_FULL_REFUSE;
  runs[1] = runs[0];
  runs[1].tokens = 2;
  runs[1].position = 600;
  runs[1].when_full = ROTA_WHEN_FULL_WRAP;
  rota_store_call call = ROTA_STORE_CALL_INIT;
  call.pairs = &pair;
  call.pair_count = 1;
  call.sequences = runs;
  call.sequence_count = 2;
  call.non_finite = twice.c;
  call.non_finite_offset_bytes = kCounter;
  must(rota_store(twice.encoder, &call));

  auto encoder = twice.cpp_device.encoder();
  const rota::StorePair pairs[] = {{twice.cpp_view(8, 5, 2, 16), twice.cpp_slots(20'000)}};
  const rota::TokenRun cpp_runs[] = {
      {.tokens = 3, .position = 127, .capacity = 256, .page_table = kPages, .when_full = rota::WhenFull::refuse},
      {.tokens = 2, .position = 600, .capacity = 256, .page_table = kPages}};
  rota::store(encoder, {.pairs = pairs, .sequences = cpp_runs, .non_finite = {{twice.cpp, kCounter}}});
  twice.same(std::move(encoder));
}

void compare_rope(const rota_rotary& rotary, const rota::Rotary& cpp_rotary, size_t axes) {
  Twice twice;
  const rota_view from = twice.view(16, 3, 2, 32), to = twice.view(1000, 3, 2, 32), weight = twice.view(5000, 1, 1, 32);
  rota_head_norm norm = ROTA_HEAD_NORM_INIT;
  norm.epsilon = 1e-3;
  norm.weight = &weight;
  norm.weight_offset = 1;
  rota_rope_tensor tensor = ROTA_ROPE_TENSOR_INIT;
  tensor.from = &from;
  tensor.to = &to;
  tensor.norm = &norm;
  const int64_t positions[] = {5, 60, 700, 8, 9, 10};
  rota_rope_call call = ROTA_ROPE_CALL_INIT;
  call.tensors = &tensor;
  call.tensor_count = 1;
  call.positions = positions;
  call.position_count = 3 * axes;
  call.rotary = &rotary;
  must(rota_rope(twice.encoder, &call));

  auto encoder = twice.cpp_device.encoder();
  const rota::RopeTensor tensors[] = {
      {.from = twice.cpp_view(16, 3, 2, 32),
       .to = twice.cpp_view(1000, 3, 2, 32),
       .norm = rota::HeadNorm{.epsilon = 1e-3, .weight = twice.cpp_view(5000, 1, 1, 32), .weight_offset = 1}}};
  rota::rope(encoder, {.tensors = tensors, .positions = std::span(positions).first(3 * axes), .rotary = cpp_rotary});
  twice.same(std::move(encoder));
}

TEST(COps, RopeWithYarn) {
  const std::vector<float> factors{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  rota_yarn yarn = ROTA_YARN_INIT;
  yarn.factor = 4;
  yarn.original_context = 300;
  yarn.beta_fast = 16;
  yarn.beta_slow = 2;
  yarn.extrapolation = 0.5;
  yarn.ramp = ROTA_YARN_EXACT;
  rota_rotary rotary = ROTA_ROTARY_INIT;
  rotary.pairing = ROTA_PAIR_INTERLEAVED;
  rotary.theta = 5e3;
  rotary.rope_dim = 24;
  rotary.turning_pairs = 10;
  rotary.exponent_dim = 28;
  rotary.factors = factors.data();
  rotary.factor_count = factors.size();
  rotary.yarn = &yarn;
  rotary.magnitude = 1.5;
  compare_rope(rotary,
               {.pairing = rota::Pairing::interleaved,
                .theta = 5e3,
                .rope_dim = 24,
                .turning_pairs = 10,
                .exponent_dim = 28,
                .factors = factors,
                .yarn = rota::Yarn{.factor = 4,
                                   .original_context = 300,
                                   .beta_fast = 16,
                                   .beta_slow = 2,
                                   .extrapolation = 0.5,
                                   .ramp = rota::YarnRamp::exact},
                .magnitude = 1.5},
               1);
}

TEST(COps, RopeWithSections) {
  const uint32_t pairs[] = {10, 6};
  rota_rope_sections sections = ROTA_ROPE_SECTIONS_INIT;
  sections.pairs = pairs;
  sections.axis_count = 2;
  sections.frequencies = ROTA_FREQUENCIES_OWN;
  rota_rotary rotary = ROTA_ROTARY_INIT;
  rotary.pairing = ROTA_PAIR_SECTION_HALVES;
  rotary.theta = 1e4;
  rotary.interpolation = 3;
  rotary.sections = &sections;
  compare_rope(rotary,
               {.pairing = rota::Pairing::section_halves,
                .theta = 1e4,
                .interpolation = 3,
                .sections = rota::RopeSections{.pairs = {10, 6},
                                               .order = rota::SectionOrder::contiguous,
                                               .frequencies = rota::SectionFrequencies::own}},
               2);
}

TEST(COps, SealAndUnseal) {
  Twice twice;
  rota_page_format format = ROTA_PAGE_FORMAT_INIT;
  format.codec = "turbo5";
  format.head_dim = 16;
  format.scale = ROTA_SCALE_RMS;
  format.seed = 77;
  rota_slot_view slots = twice.slots(0);
  rota_sealed_view sealed = ROTA_SEALED_VIEW_INIT;
  must(rota_sealed_view_packed(&sealed, twice.c, &format, 3, 2));
  sealed.offset_bytes = 100'032;
  rota_seal_page page = ROTA_SEAL_PAGE_INIT;
  page.from = 1;
  page.to = 2;
  page.tokens = 100;
  page.sinks = 3;
  rota_seal_call seal = ROTA_SEAL_CALL_INIT;
  seal.from = &slots;
  seal.to = &sealed;
  seal.pages = &page;
  seal.page_count = 1;
  seal.non_finite = twice.c;
  seal.non_finite_offset_bytes = kCounter;
  must(rota_seal(twice.encoder, &seal));
  rota_slot_view back = twice.slots(80'000);
  rota_unseal_page restored = ROTA_UNSEAL_PAGE_INIT;
  restored.from = 2;
  restored.to = 1;
  restored.tokens = 50;
  rota_unseal_call unseal = ROTA_UNSEAL_CALL_INIT;
  unseal.from = &sealed;
  unseal.to = &back;
  unseal.pages = &restored;
  unseal.page_count = 1;
  must(rota_unseal(twice.encoder, &unseal));

  auto encoder = twice.cpp_device.encoder();
  const rota::PageFormat cpp_format{.codec = rota::Turbo{.bits = 5, .scale = rota::ScaleRule::rms, .seed = 77},
                                    .side = rota::KvSide::keys,
                                    .head_dim = 16};
  auto cpp_sealed = rota::SealedView::packed(twice.cpp, cpp_format, {.pages = 3, .heads = 2});
  cpp_sealed.offset_bytes = 100'032;
  const rota::SealPage pages[] = {{.from = 1, .to = 2, .tokens = 100, .sinks = 3}};
  rota::seal(encoder,
             {.from = twice.cpp_slots(0), .to = cpp_sealed, .pages = pages, .non_finite = {twice.cpp, kCounter}});
  const rota::UnsealPage unsealed[] = {{.from = 2, .to = 1, .tokens = 50}};
  rota::unseal(encoder, {.from = cpp_sealed, .to = twice.cpp_slots(80'000), .pages = unsealed});
  twice.same(std::move(encoder));
}

TEST(COps, AttendOverSlotsAndMerge) {
  Twice twice;
  const rota_slot_view k = twice.slots(64), v = twice.slots(15'000);
  const rota_view q = twice.view(20'000, 3, 4, 16), out = twice.view(24'000, 3, 4, 16),
                  sinks = twice.view(28'000, 1, 4, 1), slopes = twice.view(28'100, 1, 4, 1),
                  log_sum_exp = twice.view(28'200, 3, 4, 1);
  rota_token_run runs[2] = {ROTA_TOKEN_RUN_INIT, ROTA_TOKEN_RUN_INIT};
  runs[0].tokens = 200;
  runs[0].capacity = 256;
  runs[0].page_table = kPages;
  runs[0].page_count = 2;
  runs[1] = runs[0];
  runs[1].tokens = 9;
  const uint64_t query_tokens[] = {1, 2};
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &q;
  call.out = &out;
  call.scale = 0.3;
  call.query_tokens = query_tokens;
  call.query_token_count = 2;
  call.mask = ROTA_MASK_NONE;
  call.arithmetic = ROTA_ARITHMETIC_F32;
  call.soft_cap = 2.5;
  call.sink_logits = &sinks;
  call.alibi_slopes = &slopes;
  call.log_sum_exp = &log_sum_exp;
  must(rota_attend_slots(twice.encoder, &k, &v, runs, 2, &call));
  const rota_view second = twice.view(26'000, 3, 4, 16), second_sums = twice.view(28'300, 3, 4, 1),
                  merged = twice.view(29'000, 3, 4, 16), merged_sums = twice.view(30'000, 3, 4, 1);
  rota_merge_call merge = ROTA_MERGE_CALL_INIT;
  merge.first_out = &out;
  merge.first_log_sum_exp = &log_sum_exp;
  merge.second_out = &second;
  merge.second_log_sum_exp = &second_sums;
  merge.out = &merged;
  merge.log_sum_exp = &merged_sums;
  must(rota_merge(twice.encoder, &merge));

  auto encoder = twice.cpp_device.encoder();
  const rota::TokenRun cpp_runs[] = {{.tokens = 200, .position = 0, .capacity = 256, .page_table = kPages},
                                     {.tokens = 9, .position = 0, .capacity = 256, .page_table = kPages}};
  const auto kv = rota::KvView::of_slots(twice.cpp_slots(64), twice.cpp_slots(15'000), cpp_runs);
  rota::attend(encoder, {.q = twice.cpp_view(20'000, 3, 4, 16),
                         .kv = kv,
                         .out = twice.cpp_view(24'000, 3, 4, 16),
                         .scale = 0.3,
                         .query_tokens = query_tokens,
                         .mask = rota::Mask::none,
                         .soft_cap = 2.5,
                         .sink_logits = twice.cpp_view(28'000, 1, 4, 1),
                         .alibi_slopes = twice.cpp_view(28'100, 1, 4, 1),
                         .log_sum_exp = twice.cpp_view(28'200, 3, 4, 1),
                         .arithmetic = rota::Arithmetic::f32});
  rota::merge(encoder, {.first = {twice.cpp_view(24'000, 3, 4, 16), twice.cpp_view(28'200, 3, 4, 1)},
                        .second = {twice.cpp_view(26'000, 3, 4, 16), twice.cpp_view(28'300, 3, 4, 1)},
                        .out = twice.cpp_view(29'000, 3, 4, 16),
                        .log_sum_exp = twice.cpp_view(30'000, 3, 4, 1)});
  twice.same(std::move(encoder));
}

TEST(COps, Checksum) {
  Twice twice;
  rota_word_range ranges[2] = {ROTA_WORD_RANGE_INIT, ROTA_WORD_RANGE_INIT};
  ranges[0].buffer = ranges[1].buffer = twice.c;
  ranges[0].offset_bytes = 4;
  ranges[0].size_bytes = 400;
  ranges[1].offset_bytes = 1000;
  ranges[1].size_bytes = 4000;
  rota_checksum_call call = ROTA_CHECKSUM_CALL_INIT;
  call.of = ranges;
  call.count = 2;
  call.sums = twice.c;
  call.sums_offset_bytes = 60'000;
  must(rota_checksum(twice.encoder, &call));
  auto encoder = twice.cpp_device.encoder();
  const rota::WordRange of[] = {{.buffer = twice.cpp, .offset_bytes = 4, .size_bytes = 400},
                                {.buffer = twice.cpp, .offset_bytes = 1000, .size_bytes = 4000}};
  rota::checksum(encoder, {.of = of, .sums = twice.cpp, .sums_offset_bytes = 60'000});
  twice.same(std::move(encoder));
}

}  // namespace
}  // namespace c_test
