#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "codec/codecs.h"
#include "ops/attend/attend.h"
#include "runtime/recorder.h"

namespace rota::ops {

// What a plan follows from. Pages are held, so that no others can come to have their address.
class PlanKey {
 public:
  explicit PlanKey(const Attend& call);
  bool is_of(const Attend& call) const noexcept;

 private:
  static constexpr std::size_t kNumbers = 29;
  using Pages = std::vector<std::shared_ptr<const KvPages>>;

  static std::array<std::uint64_t, kNumbers> numbers_of(const Attend& call) noexcept;

  std::array<std::uint64_t, kNumbers> numbers_;
  // Copies: whoever called edit() on a shared list may still write to it.
  std::vector<std::uint64_t> lengths_, query_tokens_;
  Pages k_, v_;
};

// A plan, and where the encoder's commands find it.
struct UploadedPlan {
  PlanKey key;
  AttendPlan plan;
  runtime::Binding words;
};

// Plans and tables of an encoder's calls: a step's layers have few different ones.
class AttendMemo {
 public:
  Result<const UploadedPlan*> plan_of(runtime::Recorder& recorder, const Attend& call);
  Result<runtime::Binding> table_of(runtime::Recorder& recorder, const PageFormat& format);

 private:
  struct Table {
    PageFormat format;
    runtime::Binding binding;
  };
  std::vector<std::unique_ptr<const UploadedPlan>> plans_;  // the newest last
  std::vector<Table> tables_;
};

}  // namespace rota::ops
