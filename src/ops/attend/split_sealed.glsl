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

// A sealed quad of keys against all queries, in units of its scales and without the page's mean.
void find_sealed_products(uint first_key) {
  const PageLayout layout_ = key_layout();
  const uint page = key_page(first_key);
  const uint token = first_key % p.k_page;
  const uint tile = token / kTileTokens;
  const uint quad = token % 16u / kQuadTokens;
  const uint first_column = token % kTileTokens / 16u * kColumns;
  const uint low_units = (page + plane_offset(layout_, tile, 0u) / 4u) / 4u + quad;
  const uint high_units = (page + plane_offset(layout_, tile, 1u) / 4u) / 4u + quad;
  uvec4 high = uvec4(0u);
  for (uint column = 0u; column < kColumns; column += kUnitColumns) {
    const uint nth = first_column + column;
    const uvec4 words = key_units[low_units + nth / kUnitColumns * 4u];
    if (kKeyHighBits != 0u && (column == 0u || nth % kKeyHighCells == 0u)) {
      high = key_units[high_units + nth / kKeyHighCells * 4u];
    }
    [[unroll]] for (uint cell = 0u; cell < kUnitColumns; cell++) {
      vec4 dims[4];
      [[unroll]] for (uint d = 0u; d < 4u; d++) {
        const CodeBits bits = CodeBits(8u * d + cell * kKeyLowBits, kKeyLowBits,
                                       8u * d + (nth + cell) % kKeyHighCells * kKeyHighBits, kKeyHighBits);
        dims[d] = levels_of_keys(codes_in(words, high, bits));
      }
      add_to_logits(column + cell, dims);
    }
  }
}

// Each query's product with the mean of this lane's page, in which the page's lanes share.
void find_mean_products(uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  const uint page_lanes = p.k_page / kQuadTokens;
  [[unroll]] for (uint g = 0u; g < kVectors; g++) dots[g] = 0.0;
  if (in_range(first_key / p.k_page * p.k_page, p.k_page)) {
    const uint page = key_page(first_key) / 4u;
    for (uint unit = lane % page_lanes; unit < kKeyDim / 8u; unit += page_lanes) {
      const uvec4 words = key_units[page + unit];
      [[unroll]] for (uint g = 0u; g < kVectors; g++) {
        const uint at = query_unit(min(g, query_tile.vectors - 1u)) + 2u * unit;
        const vec4 both = fma(queries[at], finite_halves(words.xy), queries[at + 1u] * finite_halves(words.zw));
        dots[g] += (both.x + both.y) + (both.z + both.w);
      }
    }
  }
  [[unroll]] for (uint g = 0u; g < kVectors; g++) lane_numbers[kDots + g * kLaneNumbers + slot_of(lane)] = dots[g];
  barrier();
  const uint pages = kLanes / page_lanes;
  for (uint i = lane; i < kVectors * pages; i += kLanes) {
    float sum = 0.0;
    for (uint n = 0u; n < page_lanes; n++) {
      sum += lane_numbers[kDots + i / pages * kLaneNumbers + slot_of(i % pages * page_lanes + n)];
    }
    page_dots[i] = sum;
  }
  barrier();
  [[unroll]] for (uint g = 0u; g < kVectors; g++) dots[g] = page_dots[g * pages + lane / page_lanes];
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

void add_sealed_values(uint key_block, uint column, uint turn) {
  const PageLayout layout_ = value_layout();
  for (uint unit = first_share(); unit < kLanes / kUnitQuads; unit += kGroups) {
    const uint quad = unit * kUnitQuads;
    const uint key = key_block + quad * kQuadTokens;
    if (!in_range(key, kUnitQuads * kQuadTokens)) continue;
    const uint page = value_page(key);
    const uint tile = key % p.v_page / kTileTokens;
    const uint tile_quad = key % kTileTokens / kQuadTokens;
    const uint low_units = (page + plane_offset(layout_, tile, 0u) / 4u) / 4u + column;
    uvec4 high = uvec4(0u);
    if (kValueHighBits != 0u) {
      const uint high_units = (page + plane_offset(layout_, tile, 1u) / 4u) / 4u + column;
      high = value_units[high_units + tile_quad / kUnitQuads * kValueColumns];
    }
    [[unroll]] for (uint first = 0u; first < kUnitQuads; first += kValueLowCells) {
      const uvec4 words = value_units[low_units + (tile_quad + first) / kValueLowCells * kValueColumns];
      [[unroll]] for (uint cell = 0u; cell < kValueLowCells; cell++) {
        vec4 tokens[4];
        [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
          const CodeBits bits = CodeBits(8u * t + cell * kValueLowBits, kValueLowBits,
                                         8u * t + (first + cell) * kValueHighBits, kValueHighBits);
          tokens[t] = levels_of_values(codes_in(words, high, bits));
        }
        [[unroll]] for (uint g = 0u; g < kVectors; g++) {
          outs[g * kTurns + turn] = add_scaled(outs[g * kTurns + turn], weights[g * kLanes + quad + first + cell],
                                               tokens[0], tokens[1], tokens[2], tokens[3]);
        }
      }
    }
  }
}
