#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

#include "ops/attend/attend.h"
#include "ops/attend/plan_reader.h"

// What a plan says, for tests.

namespace rota::ops {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct LaunchedSplit {
  KvSplit split;
  KeySource k, v;
  bool always_seen;

  std::uint64_t end() const { return std::uint64_t{split.first_key} + split.keys; }
};

struct PlannedTile {
  QueryTile tile;
  std::uint64_t round;
  std::vector<LaunchedSplit> splits;
};

// What the words of a plan say, as kernels read them.
inline std::vector<PlannedTile> query_tiles_of(const AttendPlan& plan) {
  struct Launched {
    KeySource k, v;
    bool always_seen;
    std::uint64_t round;
  };
  const PlanReader reader(plan.words.data());
  std::map<std::uint64_t, Launched> launches;  // by split
  std::vector<PlannedTile> tiles;
  for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
    require(plan.rounds[round].first_query_tile == tiles.size(), "rounds have all query tiles, one after the other");
    for (std::size_t i = 0; i < plan.rounds[round].query_tiles; ++i) {
      tiles.push_back({reader.query_tile(tiles.size()), round, {}});
    }
    for (const AttendLaunch& launch : plan.rounds[round].launches) {
      require(launch.first_split + launch.splits <= plan.words.size(), "a launch's splits are in the plan");
      for (std::uint32_t i = 0; i < launch.splits; ++i) {
        const bool fresh =
            launches.insert({reader.word(launch.first_split + i), {launch.k, launch.v, launch.always_seen, round}})
                .second;
        require(fresh, "a split is launched once");
      }
    }
  }
  std::uint64_t splits = 0;
  for (std::size_t index = 0; index < tiles.size(); ++index) {
    PlannedTile& planned = tiles[index];
    require(planned.tile.first_split == splits, "query tiles have splits one after the other");
    for (std::uint32_t i = 0; i < planned.tile.splits; ++i, ++splits) {
      require(launches.contains(splits), "every split is launched");
      const Launched& launched = launches.at(splits);
      const KvSplit& split = reader.kv_split(splits);
      require(split.query_tile == index, "a split knows its query tile");
      require(launched.round == planned.round, "a query tile's splits are in its round");
      require((split.rotated != 0) == (launched.v == KeySource::sealed), "sealed values are rotated");
      planned.splits.push_back({split, launched.k, launched.v, launched.always_seen});
    }
  }
  require(launches.size() == splits, "every launched split is a query tile's");
  require(reader.header().splits + splits * (kKvSplitWords + 1) == plan.words.size(), "no word is nobody's");
  return tiles;
}

}  // namespace rota::ops
