// The structs of attend's plan, read from `uint plan[]`, which the includer has declared. A field that nobody asks for is
// not loaded.

PlanSide plan_side(uint word) { return PlanSide(plan[word], plan[word + 1u], plan[word + 2u]); }

PlanSequence plan_sequence(uint index) {
  const uint word = kPlanHeaderWords + index * kPlanSequenceWords;
  return PlanSequence(plan[word], plan[word + 1u], plan[word + 2u], plan_side(word + 3u),
                      plan_side(word + 3u + kPlanSideWords));
}

PlanHeader plan_header() { return PlanHeader(plan[0], plan[1]); }

QueryTile query_tile_at(uint index) {
  const uint word = plan_header().query_tiles + index * kQueryTileWords;
  return QueryTile(plan[word], plan[word + 1u], plan[word + 2u], plan[word + 3u], plan[word + 4u]);
}

KvSplit kv_split_at(uint index) {
  const uint word = plan_header().splits + index * kKvSplitWords;
  return KvSplit(plan[word], plan[word + 1u], plan[word + 2u], plan[word + 3u], plan[word + 4u]);
}
