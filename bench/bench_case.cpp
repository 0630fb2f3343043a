#include "bench_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <utility>

#include "rota/ops.h"

namespace rota::bench {

// Memory that cases share.
struct Ring {
  struct Region {
    std::uint64_t bytes = 0;  // the most that a case needs
    Buffer buffer{};
  };
  std::vector<Region> regions;
  bool filled = false;
  double reached = 0;  // how much of it calls have gone through, 0 to 1
};

namespace {

constexpr std::uint64_t kPatternNumbers = 1U << 20;

std::vector<std::byte> as_bytes_of(std::span<const float> numbers, DType dtype) {
  std::vector<std::byte> bytes(numbers.size() * info(dtype).bytes);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = dtype == DType::f32   ? std::bit_cast<std::uint32_t>(numbers[i])
                               : dtype == DType::f16 ? f16_from_f32(numbers[i])
                                                     : bf16_from_f32(numbers[i]);
    for (std::uint32_t b = 0; b < info(dtype).bytes; ++b) {
      bytes[i * info(dtype).bytes + b] = static_cast<std::byte>(bits >> (8 * b));
    }
  }
  return bytes;
}

// Made once for each type: drawing them takes longer than filling memory with them.
const std::vector<std::byte>& normal_bytes(DType dtype) {
  static const std::vector<float> normal = [] {
    std::mt19937 random(7);
    std::normal_distribution<float> distribution;
    std::vector<float> drawn(kPatternNumbers);
    std::ranges::generate(drawn, [&] { return distribution(random); });
    return drawn;
  }();
  static std::map<DType, std::vector<std::byte>> made;
  auto found = made.find(dtype);
  if (found == made.end()) found = made.emplace(dtype, as_bytes_of(normal, dtype)).first;
  return found->second;
}

Buffer filled(Device& device, std::uint64_t bytes, std::span<const std::byte> pattern) {
  Buffer buffer = device.allocate(bytes).value();
  for (std::uint64_t at = 0; at < bytes; at += pattern.size()) {
    buffer.write(pattern.first(std::min<std::uint64_t>(pattern.size(), bytes - at)), at).value();
  }
  return buffer;
}

std::string name_of(const PageFormat& format) {
  std::string name;
  for (const std::byte byte : describe(format)) name += static_cast<char>(byte);
  return name;
}

std::vector<std::byte> seal_normal_numbers(Device& device, const PageFormat& format) {
  constexpr std::uint64_t kPages = 16;
  const SlotShape slots{.pages = kPages, .page_slots = format.tokens, .heads = 1, .dim = format.head_dim};
  const Buffer dense = numbers_in(device, DType::f16, kPages * format.tokens * format.head_dim);
  std::vector<std::byte> bytes(kPages * page_bytes(format));
  const Buffer sealed = device.allocate(bytes.size()).value();
  const Buffer counter = cleared(device, 8);
  std::vector<SealPage> pages;
  for (std::uint64_t page = 0; page < kPages; ++page) pages.push_back({.from = page, .to = page});
  submit(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::head_major(dense, DType::f16, slots),
                   .to = SealedView::packed(sealed, format, {.pages = kPages, .heads = 1}),
                   .pages = pages,
                   .non_finite = {counter}});
  });
  sealed.read(bytes).value();
  return bytes;
}

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Content numbers(DType dtype) {
  return {.name = std::string(info(dtype).name), .pattern = [dtype](Device&) { return normal_bytes(dtype); }};
}

Content sealed_pages(const PageFormat& format) {
  return {.name = "sealed " + name_of(format), .unit = page_bytes(format), .pattern = [format](Device& device) {
            return seal_normal_numbers(device, format);
          }};
}

Content blank_pages(const PageFormat& format) {
  return {.name = "blank " + name_of(format), .unit = page_bytes(format), .pattern = [format](Device&) {
            return std::vector<std::byte>(16 * page_bytes(format));
          }};
}

CallCopies::Where CallCopies::add(const Content& content, std::uint64_t bytes) {
  const std::uint64_t whole = rounded_up(bytes, content.unit);
  const auto alike = [&](const Part& part) {
    return part.content.name == content.name && whole <= most_bytes_ - std::min(most_bytes_, part.bytes);
  };
  auto found = std::ranges::find_if(parts_, alike);
  if (found == parts_.end()) found = parts_.insert(found, {.content = content});
  const Where where{static_cast<std::size_t>(found - parts_.begin()), found->bytes};
  found->bytes += whole;
  return where;
}

std::uint64_t CallCopies::bytes() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.bytes;
  return sum;
}

void CallCopies::reserve(Place& place, std::uint64_t rotated_bytes) {
  count_ = std::max<std::uint64_t>(1, rounded_up(rotated_bytes, bytes()) / bytes());
  std::string held;
  for (const Part& part : parts_) {
    held += part.content.name + "\n";
    // Memory that does not fit into a buffer gets fewer copies.
    count_ = std::clamp<std::uint64_t>(place.device.info().limits.max_buffer_bytes / part.bytes, 1, count_);
  }
  std::shared_ptr<Ring>& ring = place.rings[held];
  if (!ring || ring->filled) ring = std::make_shared<Ring>(Ring{.regions = std::vector<Ring::Region>(parts_.size())});
  for (std::size_t at = 0; at < parts_.size(); ++at) {
    std::uint64_t& reserved = ring->regions[at].bytes;
    const std::uint64_t wanted = std::max(reserved, count_ * parts_[at].bytes);
    place.take(wanted - reserved);
    reserved = wanted;
  }
  ring_ = ring;
}

void CallCopies::fill(Device& device) const {
  if (ring_->filled) return;
  for (std::size_t at = 0; at < parts_.size(); ++at) {
    Ring::Region& region = ring_->regions[at];
    region.buffer = filled(device, region.bytes, parts_[at].content.pattern(device));
  }
  ring_->filled = true;
}

// Each region is shared out evenly, so that a part of a ring is the same part of each of its regions.
CallCopies::At CallCopies::at(const Where& where, std::uint64_t copy) const {
  const Ring::Region& region = ring_->regions[where.part];
  const std::uint64_t unit = parts_[where.part].content.unit;
  const std::uint64_t stride = region.bytes / count_ / unit * unit;
  return {region.buffer, copy * stride + where.inside};
}

std::uint64_t CallCopies::next() const {
  constexpr double kRounding = 1e-6;
  const auto count = static_cast<double>(count_);
  auto copy = static_cast<std::uint64_t>(std::ceil(ring_->reached * count - kRounding));
  if (copy >= count_) copy = 0;
  ring_->reached = static_cast<double>(copy + 1) / count;
  return copy;
}

Buffer cleared(Device& device, std::uint64_t bytes) {
  return filled(device, bytes, std::vector<std::byte>(std::min<std::uint64_t>(bytes, 1U << 20)));
}

Buffer numbers_in(Device& device, DType dtype, std::uint64_t count) {
  return filled(device, count * info(dtype).bytes, normal_bytes(dtype));
}

void submit(Device& device, const std::function<void(Encoder&)>& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  std::move(encoder).submit().value().wait().value();
}

std::function<void(std::uint64_t calls)> rotating(Device device, std::shared_ptr<const CallCopies> copies,
                                                  std::function<void(Encoder&, std::uint64_t copy)> record) {
  return [device, copies = std::move(copies), record = std::move(record)](std::uint64_t calls) mutable {
    submit(device, [&](Encoder& encoder) {
      for (std::uint64_t call = 0; call < calls; ++call) record(encoder, copies->next());
    });
  };
}

}  // namespace rota::bench
