#pragma once

#include <map>
#include <utility>

#include "gpu_cost/attend_model.h"
#include "gpu_cost/card.h"

namespace rota::test {

// Kernels of a card, each compiled and read once. Members throw where a kernel does not fit its model.
class Models {
 public:
  explicit Models(Card& card) : card_(card) {}

  const Compiled& compiled(const runtime::Kernel& kernel, const runtime::Constants& constants) {
    return card_.compiled(kernel, constants);
  }

  const MachineCode& code_of(const runtime::Kernel& kernel, const runtime::Constants& constants) {
    const auto found = codes_.find({&kernel, constants});
    if (found != codes_.end()) return found->second;
    MachineCode code = machine_code_of(compiled(kernel, constants).assembly);
    return codes_.emplace(std::pair(&kernel, constants), std::move(code)).first->second;
  }

  const SplitModel& split_of(const runtime::Kernel& kernel, const runtime::Constants& constants) {
    const auto found = splits_.find({&kernel, constants});
    if (found != splits_.end()) return found->second;
    SplitModel model(code_of(kernel, constants), SplitWork(constants));
    return splits_.emplace(std::pair(&kernel, constants), std::move(model)).first->second;
  }

 private:
  using Key = std::pair<const runtime::Kernel*, runtime::Constants>;

  Card& card_;
  std::map<Key, MachineCode> codes_;
  std::map<Key, SplitModel> splits_;
};

}  // namespace rota::test
