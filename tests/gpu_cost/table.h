#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The table of costs: a section of docs/gpu.md for each chip, written and read by rota_gpu_cost alone.

namespace rota::test {

struct Figure {
  std::string_view statistic;  // the driver's name for it
  std::string_view heading;
  bool is_spill = false;  // memory traffic that the kernel's text does not show
};

inline constexpr std::array kFigures{Figure{"VGPRs", "VGPRs"},
                                     Figure{"SGPRs", "SGPRs"},
                                     Figure{"Spilled VGPRs", "spilled VGPRs", true},
                                     Figure{"Spilled SGPRs", "spilled SGPRs", true},
                                     Figure{"Scratch size", "scratch bytes", true},
                                     Figure{"LDS size", "LDS bytes"},
                                     Figure{"Instructions", "instructions"},
                                     Figure{"Code size", "code bytes"},
                                     Figure{"Latency", "latency"},
                                     Figure{"Subgroups per SIMD", "waves per SIMD"}};

using Cost = std::array<std::uint64_t, kFigures.size()>;

struct Row {
  std::string kernel, call;
  Cost cost{};

  friend bool operator==(const Row&, const Row&) = default;
};

std::string name_of(const Row& row);
std::string text_of(const Row& row);
std::string text_of(std::span<const Row> rows);  // with its head

// The part of a document between "<!-- <chip> -->" and "<!-- end -->". Both throw where there is none.
std::string section_of(const std::string& document, std::string_view chip);
std::string with_section(const std::string& document, std::string_view chip, std::string_view section);

// The rows in a section. Throws where a line of the table is none.
std::vector<Row> rows_of(const std::string& section);

// A sentence for each figure that left the accepted one by more than kTolerancePercent, up or down, and for each row
// that one side has alone.
inline constexpr std::uint64_t kTolerancePercent = 3;
std::vector<std::string> differences(std::span<const Row> accepted, std::span<const Row> measured);

}  // namespace rota::test
