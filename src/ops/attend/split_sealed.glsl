// Part of attend_split.comp: sealed keys and values.

void read_levels() {
  for (uint code = gl_LocalInvocationIndex; code < 64u; code += kLanes) {
    if (kKeysSealed && kKeyBits < kUniformBits && code < 1u << kKeyBits) {
      key_levels[code] = float(LEVEL_IN(key_table, kKeyBits, code));
    }
    if (kValuesSealed && kValueBits < kUniformBits && code < 1u << kValueBits) {
      value_levels[code] = float(LEVEL_IN(value_table, kValueBits, code));
    }
  }
}

vec4 levels_of_keys(uvec4 codes) {
  if (kKeyBits == kUniformBits) return vec4(codes) - 128.0;
  return vec4(key_levels[codes.x], key_levels[codes.y], key_levels[codes.z], key_levels[codes.w]);
}

vec4 levels_of_values(uvec4 codes) {
  if (kValueBits == kUniformBits) return vec4(codes) - 128.0;
  return vec4(value_levels[codes.x], value_levels[codes.y], value_levels[codes.z], value_levels[codes.w]);
}

// The first word of a key's sealed page.
uint key_page(uint key) {
  return low(p.k.offset) + plan[sequence.k.page_table + key / p.k_page] * low(p.k.page) + kv_head * low(p.k.head);
}

uint value_page(uint key) {
  return low(p.v.offset) + plan[sequence.v.page_table + key / p.v_page] * low(p.v.page) + kv_head * low(p.v.head);
}

PageLayout key_layout() { return PageLayout(kKeys, kKeyBits, kKeyDim, p.k_page, uint(kHasMean)); }
PageLayout value_layout() { return PageLayout(kValues, kValueBits, kValueDim, p.v_page, 0u); }

// Where a quad of keys lies in its page.
struct KeyPlanes {
  uint low_units, high_units;  // its first of each plane; the units of the quad are 4 apart
  uint first_column;           // of the tile
};

KeyPlanes key_planes(uint page, uint token) {
  const PageLayout layout_ = key_layout();
  const uint tile = token / kTileTokens;
  const uint quad = token % 16u / kQuadTokens;
  return KeyPlanes((page + plane_offset(layout_, tile, 0u) / 4u) / 4u + quad,
                   (page + plane_offset(layout_, tile, 1u) / 4u) / 4u + quad,
                   token % kTileTokens / 16u * kColumns);
}

// A sealed quad of keys against all queries, in units of its scales and without the page's mean.
void find_sealed_products(uint page, uint token) {
  const KeyPlanes planes = key_planes(page, token);
  const uint first_unit = planes.first_column / kUnitColumns;
  for (uint first = 0u; first < kKeyUnitCount; first += kKeyBatch) {
    uvec4 words[8], high[8];
    [[unroll]] for (uint i = 0u; i < kKeyBatch; i++) {
      words[i] = key_units[planes.low_units + (first_unit + first + i) * 4u];
    }
    [[unroll]] for (uint i = 0u; i < kKeyHighBatch; i++) {
      const uint unit = (first_unit + first + i * kKeyHighLows) * kUnitColumns / kKeyHighCells;
      high[i] = key_units[planes.high_units + unit * 4u];
    }
    [[dont_unroll]] for (uint cell = 0u; cell < kUnitColumns; cell++) {
      [[unroll]] for (uint i = 0u; i < kKeyBatch; i++) {
        const uint column = (first + i) * kUnitColumns + cell;
        const uint high_cell = kKeyHighsWhole ? i % kKeyHighLows * kUnitColumns + cell
                                              : (planes.first_column + column) % kKeyHighCells;
        vec4 dims[4];
        [[unroll]] for (uint d = 0u; d < 4u; d++) {
          const CodeBits bits =
              CodeBits(8u * d + cell * kKeyLowBits, kKeyLowBits, 8u * d + high_cell * kKeyHighBits, kKeyHighBits);
          dims[d] = levels_of_keys(codes_in(words[i], high[i / kKeyHighLows], bits));
        }
        add_to_logits(column, dims);
      }
    }
  }
}

// Each query's product with the mean of each page of the split: eight pages at a time, which eight lanes share each.
void find_mean_products() {
  const uint lane = gl_LocalInvocationIndex;
  const uint first_page = range.x / p.k_page;
  const uint pages = (range.y - 1u) / p.k_page + 1u - first_page;
  for (uint first = 0u; first < pages; first += kMeanPages) {
    float dots[kVectors];
    [[unroll]] for (uint g = 0u; g < kVectors; g++) dots[g] = 0.0;
    const uint nth = first + lane / kMeanLanes;
    if (nth < pages) {
      const uint page = key_page((first_page + nth) * p.k_page) / 4u;
      for (uint unit = lane % kMeanLanes; unit < kKeyDim / 8u; unit += kMeanLanes) {
        const uvec4 words = key_units[page + unit];
        [[unroll]] for (uint g = 0u; g < kVectors; g++) {
          const uint at = query_unit(min(g, query_tile.vectors - 1u)) + 2u * unit;
          const vec4 both = fma(queries[at], finite_halves(words.xy), queries[at + 1u] * finite_halves(words.zw));
          dots[g] += (both.x + both.y) + (both.z + both.w);
        }
      }
    }
    [[unroll]] for (uint g = 0u; g < kVectors; g++) lane_numbers[g * kLaneNumbers + slot_of(lane)] = dots[g];
    barrier();
    for (uint i = lane; i < kVectors * kMeanPages; i += kLanes) {
      const uint at = i / kMeanPages * kLaneNumbers;
      float sum = 0.0;
      [[unroll]] for (uint n = 0u; n < kMeanLanes; n++) {
        sum += lane_numbers[at + slot_of(i % kMeanPages * kMeanLanes + n)];
      }
      if (first + i % kMeanPages < pages) page_dots[i / kMeanPages * kSplitPages + first + i % kMeanPages] = sum;
    }
    barrier();
  }
}

// Four of a page's scales, with their signs.
uvec2 key_scales(uint page, uint token) {
  const uint word = page + scales_offset(key_layout()) / 4u + token / 2u;
  return uvec2(key_word(word), key_word(word + 1u));
}

uvec2 value_scales(uint page, uint token) {
  const uint word = page + scales_offset(value_layout()) / 4u + token / 2u;
  return uvec2(value_word(word), value_word(word + 1u));
}

// Where the units of values begin that a token's tile has.
uint value_tile(uint page, uint token) {
  return (page + plane_offset(value_layout(), token / kTileTokens, 0u) / 4u) / 4u;
}

// `quads` of the key block are in the range, from and to. Whoever adds a unit does not depend on the range, and weights
// outside of it are zero.
void add_sealed_values(uvec2 quads) {
  const uint high_plane = kTileTokens / 8u * kValueDim * kValueLowBits / 16u;  // from where the tile begins
  const uint last = (quads.y - 1u) / kUnitQuads;
  const uint batch_units = kUnitBatch * kGroups;
  for (uint batch = quads.x / kUnitQuads / batch_units; batch <= last / batch_units; batch++) {
    const uint first = batch * batch_units + first_share();
    uvec4 words[8u * kMostTurns], high[2u * kMostTurns];  // [turn][unit][unit of the low plane], [turn][unit]
    [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
      [[unroll]] for (uint n = 0u; n < kUnitBatch; n++) {
        const uint quad = min(first + n * kGroups, last) * kUnitQuads;
        const uint tile = value_tiles[quad / kTileQuads] + value_column(turn);
        const uint tile_quad = quad % kTileQuads;
        [[unroll]] for (uint i = 0u; i < kUnitLows; i++) {
          words[turn * 8u + n * kUnitLows + i] = value_units[tile + (tile_quad / kValueLowCells + i) * kValueColumns];
        }
        if (kValueHighBits == 0u) continue;
        high[turn * 2u + n] = value_units[tile + high_plane + tile_quad / kUnitQuads * kValueColumns];
      }
    }
    [[dont_unroll]] for (uint cell = 0u; cell < kValueLowCells; cell++) {
      [[unroll]] for (uint n = 0u; n < kUnitBatch * kUnitLows; n++) {
        const uint unit = first + n / kUnitLows * kGroups;
        const uint nth = n % kUnitLows * kValueLowCells + cell;
        if (!kUnitsDivide && unit >= kBlockUnits) continue;
        [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
          const uvec4 high_words = kValueHighBits == 0u ? uvec4(0u) : high[turn * 2u + n / kUnitLows % 2u];
          vec4 tokens[4];
          [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
            const CodeBits bits =
                CodeBits(8u * t + cell * kValueLowBits, kValueLowBits, 8u * t + nth * kValueHighBits, kValueHighBits);
            tokens[t] = levels_of_values(codes_in(words[turn * 8u + n], high_words, bits));
          }
          add_to_outs(turn, unit * kUnitQuads + nth, tokens);
        }
      }
    }
  }
}
