#include "distort/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "rota/dtype.h"
#include "rota/ops.h"

namespace rota::tool {
namespace {

std::vector<float> rounded(std::span<const float> values, DType dtype) {
  std::vector<float> result(values.begin(), values.end());
  for (float& value : result) {
    if (dtype == DType::f16) value = f32_from_f16(f16_from_f32(value));
    if (dtype == DType::bf16) value = f32_from_bf16(bf16_from_f32(value));
  }
  return result;
}

// Numbers of several heads in turn, of each its whole pages.
Status seal_and_restore(Device& device, const Setting& setting, const PageFormat& format,
                        std::span<const std::span<float>> heads) {
  const std::uint64_t head_pages = setting.tokens / format.tokens, pages = head_pages * heads.size();
  const std::uint64_t head_bytes = head_pages * format.tokens * format.head_dim * sizeof(float);
  const SlotShape shape{.pages = pages, .page_slots = format.tokens, .heads = 1, .dim = format.head_dim};
  Buffer floats = device.allocate(heads.size() * head_bytes).value();
  for (std::size_t head = 0; head < heads.size(); ++head) {
    floats.write(std::as_bytes(heads[head]).first(head_bytes), head * head_bytes).value();
  }
  std::vector<SealPage> seals;
  std::vector<UnsealPage> unseals;
  for (std::uint64_t page = 0; page < pages; ++page) {
    const std::uint64_t before = page % head_pages * format.tokens;
    const std::uint64_t own_sinks =
        std::min<std::uint64_t>(setting.sinks - std::min(setting.sinks, before), format.tokens);
    seals.push_back({.from = page, .to = page, .sinks = own_sinks});
    unseals.push_back({.from = page, .to = page});
  }
  const auto slots = SlotView::head_major(floats, DType::f32, shape);
  const auto sealed =
      SealedView::packed(device.allocate(pages * page_bytes(format)).value(), format, {.pages = pages, .heads = 1});
  Buffer counter = device.allocate(sizeof(std::uint64_t)).value();
  counter.write(std::vector<std::byte>(sizeof(std::uint64_t))).value();
  Encoder encoder = device.encoder();
  seal(encoder, {.from = slots, .to = sealed, .pages = seals, .non_finite = {counter}});
  unseal(encoder, {.from = sealed, .to = slots, .pages = unseals});
  const auto done = std::move(encoder).submit();
  if (!done) return done.error();
  if (Status status = done->wait(); !status) return status;
  for (std::size_t head = 0; head < heads.size(); ++head) {
    floats.read(std::as_writable_bytes(heads[head]).first(head_bytes), head * head_bytes).value();
  }
  return {};
}

// The library knows nothing of captures; its message gets the name of the first whose numbers it was given.
void require(const std::string& name, const Status& status) {
  if (status) return;
  // An argument that came from a capture is the capture's fault.
  const Errc code = status.error().code == Errc::invalid_argument ? Errc::io : status.error().code;
  throw BadResult(named(name, {code, status.error().message}));
}

// Of the page's numbers, less the mean of their dim.
double centred_square(std::span<const float> page, std::uint64_t dim) {
  const double tokens = static_cast<double>(page.size()) / static_cast<double>(dim);
  std::vector<double> means(dim);
  for (std::size_t at = 0; at < page.size(); at += dim) {
    for (std::size_t part = 0; part < dim; ++part) means[part] += static_cast<double>(page[at + part]);
  }
  for (double& mean : means) mean /= tokens;
  double square = 0;
  for (std::size_t at = 0; at < page.size(); at += dim) {
    for (std::size_t part = 0; part < dim; ++part) {
      const double less = static_cast<double>(page[at + part]) - means[part];
      square += less * less;
    }
  }
  return square;
}

}  // namespace

StorageSums& StorageSums::operator+=(const StorageSums& other) {
  values += other.values;
  error += other.error;
  square += other.square;
  coded_square += other.coded_square;
  largest_error = std::max(largest_error, other.largest_error);
  return *this;
}

std::vector<Restored> restore(Device& device, const Setting& setting, const Trial& trial,
                              std::span<const Capture> captures) {
  std::vector<Restored> restored;
  if (const auto* const dtype = std::get_if<DType>(&trial.codec)) {
    for (const Capture& capture : captures) {
      restored.push_back({rounded(capture.keys, *dtype), rounded(capture.values, *dtype)});
    }
    return restored;
  }
  for (const Capture& capture : captures) restored.push_back({capture.keys, capture.values});
  std::vector<std::span<float>> keys, values;
  for (Restored& one : restored) {
    keys.emplace_back(one.keys);
    values.emplace_back(one.values);
  }
  const auto restore_side = [&](KvSide side, const std::string& name, const std::vector<std::span<float>>& heads) {
    const auto format = page_format(trial, side, setting.dim);
    if (format) require(name, seal_and_restore(device, setting, *format, heads));  // what is not dense has one
  };
  restore_side(KvSide::keys, captures.front().key_name, keys);
  restore_side(KvSide::values, captures.front().value_name, values);
  return restored;
}

StorageSums storage_sums(const Setting& setting, const Trial& trial, KvSide side, const Pair& numbers) {
  const std::optional<PageFormat> format = page_format(trial, side, setting.dim);
  const bool has_mean = format && format->has_mean();
  const std::uint64_t page = trial.page;
  StorageSums sums;
  for (std::uint64_t begin = 0; begin + page <= setting.tokens; begin += page) {
    const Range range{std::clamp(setting.sinks, begin, begin + page), begin + page};
    const std::uint64_t first = range.begin * setting.dim, count = (range.end - range.begin) * setting.dim;
    for (std::uint64_t at = first; at < first + count; ++at) {
      const auto value = static_cast<double>(numbers.exact[at]);
      const double error = static_cast<double>(numbers.restored[at]) - value;
      sums.square += value * value;
      sums.error += error * error;
      sums.largest_error = std::max(sums.largest_error, std::abs(error));
    }
    sums.values += count;
    if (has_mean && count != 0) sums.coded_square += centred_square(numbers.exact.subspan(first, count), setting.dim);
  }
  if (!has_mean) sums.coded_square = sums.square;
  return sums;
}

}  // namespace rota::tool
