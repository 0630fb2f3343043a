#pragma once

#include <string>
#include <vector>

#include "gpu_cost/models.h"
#include "gpu_cost/table.h"

// The tables of docs/gpu.md beside that of registers and instructions.

namespace rota::test {

struct Section {
  std::string name;        // of its marks
  std::string words = {};  // before the table
  Table table;
};

// A kernel that calls.h's calls run.
struct UsedKernel {
  const runtime::Kernel* kernel;
  runtime::Constants constants;
  std::string call;
};

// Kernels that do not fit their model are problems, and have no row.
Section waits_section(Card& card, Models& models, const std::vector<UsedKernel>& kernels,
                      std::vector<std::string>& problems);
Section launches_section(Card& card);
Section workgroups_section(Card& card);
Section gpus_section();
Section estimates_section(Card& card, Models& models);

}  // namespace rota::test
