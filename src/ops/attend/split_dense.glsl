// Part of attend_split.comp: dense keys and values.

// The first element of a key's dense row.
uint dense_row(SlotStrides strides, PlanSide side, uint page_slots, uint key) {
  const uint slot = side.ring == 0u ? key : key % side.ring;
  return low(strides.offset) + plan[side.page_table + slot / page_slots] * low(strides.page) +
         slot % page_slots * low(strides.slot) + kv_head * low(strides.head);
}

uint sink_row(SlotStrides strides, PlanSide side, uint key) {
  return low(strides.offset) + side.sinks * low(strides.page) + key * low(strides.slot) + kv_head * low(strides.head);
}

uint key_row(uint key) {
  return (p.flags & kKeySinks) != 0u ? sink_row(p.k, sequence.k, key) : dense_row(p.k, sequence.k, p.k_page, key);
}

uint value_row(uint key) {
  return (p.flags & kValueSinks) != 0u ? sink_row(p.v, sequence.v, key) : dense_row(p.v, sequence.v, p.v_page, key);
}

// Four elements as numbers, from what load_keys or load_values found.
vec4 dense_numbers(uint format, uvec4 elements) {
  return uintBitsToFloat(uvec4(widen_element(elements.x, format), widen_element(elements.y, format),
                               widen_element(elements.z, format), widen_element(elements.w, format)));
}

// A dense column of one key: its four dims. `words` is what load_key_unit found.
vec4 dense_column(uvec4 words, uint nth) {
  if (!kKeyUnits || kKeyFormat == kF32) return dense_numbers(kKeyFormat, words);
  const uvec2 pair = nth == 0u ? words.xy : words.zw;
  if (kKeyFormat == kF16) return halves(pair);
  return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
}

uvec4 load_key_unit(uint row, uint column) {
  if (kKeyUnits) return key_units[(row + 4u * column) / (kKeyFormat == kF32 ? 4u : 8u)];
  uvec4 elements = uvec4(0u);
  [[unroll]] for (uint i = 0u; i < 4u; i++) {
    if (4u * column + i >= kKeyDim) continue;
    const uint index = row + (4u * column + i) * low(p.k.dim);
    elements[i] = kKeyFormat == kF32 ? key_word(index) : HALF_OF(key_word(index >> 1), index);
  }
  return elements;
}

vec4 load_dense_values(uint row, uint column) {
  if (!kValueUnits) {
    uvec4 elements = uvec4(0u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
      if (4u * column + i >= kValueDim) continue;
      const uint index = row + (4u * column + i) * low(p.v.dim);
      elements[i] = kValueFormat == kF32 ? value_word(index) : HALF_OF(value_word(index >> 1), index);
    }
    return dense_numbers(kValueFormat, elements);
  }
  const uint index = row + 4u * column;
  if (kValueFormat == kF32) return uintBitsToFloat(value_units[index / 4u]);
  const uvec2 pair = uvec2(value_word(index / 2u), value_word(index / 2u + 1u));
  if (kValueFormat == kF16) return halves(pair);
  return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
}

void find_dense_products(uint first_key) {
  uint rows[4];
  bvec4 there;
  [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
    there[t] = in_range(first_key + t, 1u);
    rows[t] = there[t] ? key_row(first_key + t) : 0u;
  }
  for (uint column = 0u; column < kColumns; column += kUnitColumns) {
    uvec4 words[4];
    [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
      words[t] = there[t] ? load_key_unit(rows[t], column) : uvec4(0u);
    }
    [[unroll]] for (uint nth = 0u; nth < kUnitColumns; nth++) {
      const mat4 dims = transpose(mat4(dense_column(words[0], nth), dense_column(words[1], nth),
                                       dense_column(words[2], nth), dense_column(words[3], nth)));
      add_to_logits(column + nth, vec4[4](dims[0], dims[1], dims[2], dims[3]));
    }
  }
}

void add_dense_values(uint key_block, uint column, uint turn) {
  for (uint quad = first_share(); quad < kLanes; quad += kGroups) {
    const uint key = key_block + quad * kQuadTokens;
    if (!in_range(key, kQuadTokens)) continue;
    vec4 tokens[4];
    [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
      tokens[t] = in_range(key + t, 1u) ? load_dense_values(value_row(key + t), column) : vec4(0.0);
    }
    [[unroll]] for (uint g = 0u; g < kVectors; g++) {
      const vec4 by = weights[g * kLanes + quad];
      // What a vector does not see may be NaN: a weight of zero is not enough.
      [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
        if (by[t] != 0.0) outs[g * kTurns + turn] = fma(vec4(by[t]), tokens[t], outs[g * kTurns + turn]);
      }
    }
  }
}
