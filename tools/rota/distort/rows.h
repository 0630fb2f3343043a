#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/table.h"
#include "distort/captures.h"
#include "distort/meter.h"

// What `rota distort` says of a source: rows of JSON, and text made of them.

namespace rota::tool {

inline constexpr std::uint32_t kOptionsBits = 4;  // where the codec's options are tried

bool is_sealed(const KvCodec& codec);

std::vector<Json> storage_rows(const Source& source, const DistortMeter& meter);
// With halves of intervals where queries were sampled. None without queries.
std::vector<Json> attention_rows(const Source& source, const DistortMeter& meter);
std::vector<Json> option_rows(const Source& source, const DistortMeter& meter);

enum class Per { head, layer };

// What each codec does to each head, or to all heads of a layer. None for random numbers.
std::vector<Json> part_rows(const Source& source, const DistortMeter& meter, Per per);

Json source_json(const Source& source, const DistortMeter& meter, const Changed& changed);

// The lines that stand before all tables. `heads` are of part_rows().
std::string source_text(const Json& source, const std::vector<Json>& heads);

// All rows of one source.
struct AttentionRows {
  std::string source;
  std::vector<Json> attention{}, options{}, parts{};
  Per per = Per::head;
};

std::string attention_text(const AttentionRows& rows, Output output);
std::string parts_text(const AttentionRows& rows, Output output);

}  // namespace rota::tool
