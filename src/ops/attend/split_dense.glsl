// Part of attend_split.comp: dense keys and values.

// The first element of a key's dense row. Chosen without a branch: that would have each page waited for.
uint dense_row(SlotStrides strides, PlanSide side, uint page_slots, bool is_sink, uint key) {
  const uint slot = side.ring == 0u ? key : key % side.ring;
  const uint listed = plan[is_sink ? 0u : side.page_table + slot / page_slots];
  const uint page = is_sink ? side.sinks : listed;
  const uint page_slot = is_sink ? key : slot % page_slots;
  return low(strides.offset) + page * low(strides.page) + page_slot * low(strides.slot) + kv_head * low(strides.head);
}

uint key_row(uint key) { return dense_row(p.k, sequence.k, p.k_page, (p.flags & kKeySinks) != 0u, key); }
uint value_row(uint key) { return dense_row(p.v, sequence.v, p.v_page, (p.flags & kValueSinks) != 0u, key); }

// Rows of this lane's quad, for the lanes that will load them. Keys that are not in the range have another's row: it
// can be loaded, and nobody looks at it.
void find_rows(uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  uvec4 of_keys, of_values;
  [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
    const uint key = clamp(first_key + t, range.x, range.y - 1u);
    if (!kKeysSealed) of_keys[t] = key_row(key);
    if (!kValuesSealed) of_values[t] = value_row(key);
  }
  if (!kKeysSealed) key_rows[lane] = of_keys;
  if (!kValuesSealed) value_rows[lane] = of_values;
}

// Four elements of 16 bits, or of 32.
vec4 dense_numbers(uint format, uvec4 words) {
  if (format == kF32) return uintBitsToFloat(words);
  if (format == kF16) return halves(words.xy);
  return uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
}

// Four elements that were loaded one by one, as they would be side by side.
uvec4 side_by_side(uint format, uvec4 elements) {
  return format == kF32 ? elements : uvec4(elements.xz | elements.yw << 16, 0u, 0u);
}

// The nth column of one key: its four dims. `words` is what load_key_unit found.
vec4 dense_column(uvec4 words, uint nth) { return dense_numbers(kKeyFormat, nth == 0u ? words : words.zwzw); }

uvec4 load_key_elements(uint row, uint column) {
  uvec4 elements = uvec4(0u);
  [[unroll]] for (uint i = 0u; i < 4u; i++) {
    if (4u * column + i >= kKeyDim) continue;
    const uint index = row + (4u * column + i) * low(p.k.dim);
    elements[i] = kKeyFormat == kF32 ? key_word(index) : HALF_OF(key_word(index >> 1), index);
  }
  return side_by_side(kKeyFormat, elements);
}

uvec4 load_key_unit(uint row, uint column) {
  if (kKeyUnits) return key_units[(row + 4u * column) / (kKeyFormat == kF32 ? 4u : 8u)];
  const uvec4 first = load_key_elements(row, column);
  return kUnitColumns == 1u ? first : uvec4(first.xy, load_key_elements(row, column + 1u).xy);
}

// Dense keys. A lane for each key would touch a line for each load; so four lanes read the line of a row together, a
// unit each, and one of them adds up what they found. For the 16 keys of lanes a, b, c and d, in four passes of a quad:
//
//              line 0          line 1                      key 0  1  2  3
//   key 0   | a  b  c  d  |  a  b  c  d  |     a's sums      [ .  .  .  . ]  over its units of all lines
//   key 1   | a  b  c  d  |  a  b  c  d  |     b's           [ .  .  .  . ]
//   key 2   | a  b  c  d  |  a  b  c  d  |     c's           [ .  .  .  . ]
//   key 3   | a  b  c  d  |  a  b  c  d  |     d's           [ .  .  .  . ]  added up by the lane that has the quad
uint line_unit(uint line) { return line * kLineLanes + gl_LocalInvocationIndex % kLineLanes; }

void add_line_column(uint unit, uint nth, uvec4 a, uvec4 b, uvec4 c, uvec4 d) {
  const mat4 keys = mat4(dense_column(a, nth), dense_column(b, nth), dense_column(c, nth), dense_column(d, nth));
  const mat4 dims = transpose(keys);
  add_to_logits(unit * kUnitColumns + nth, vec4[4](dims[0], dims[1], dims[2], dims[3]));
}

// Columns are added one after the other, however many lines a batch has: that depends on the number of vectors.
void add_lines(uvec4 rows, uint first_line) {
  uvec4 units[16];  // [line][key]
  [[unroll]] for (uint i = 0u; i < 4u * kLineBatch; i++) {
    units[i] = load_key_unit(rows[i % 4u], min(line_unit(first_line + i / 4u), kKeyUnitCount - 1u) * kUnitColumns);
  }
  [[unroll]] for (uint i = 0u; i < kLineBatch; i++) {
    const uint unit = line_unit(first_line + i);
    if (kKeyUnitCount % kLineLanes != 0u && unit >= kKeyUnitCount) continue;
    add_line_column(unit, 0u, units[4u * i], units[4u * i + 1u], units[4u * i + 2u], units[4u * i + 3u]);
    if (kUnitColumns == 1u) continue;
    add_line_column(unit, 1u, units[4u * i], units[4u * i + 1u], units[4u * i + 2u], units[4u * i + 3u]);
  }
}

// One quad of each four lanes, as far as this lane's units go.
void find_line_sums(uvec4 rows) {
  if (kLineBatch == kRowLines) {
    add_lines(rows, 0u);
  } else {
    [[dont_unroll]] for (uint line = 0u; line < kRowLines; line += kLineBatch) add_lines(rows, line);
  }
}

void find_dense_products(uint key_block) {
  const uint lane = gl_LocalInvocationIndex;
  const uint first_lane = lane / kLineLanes * kLineLanes;
  [[dont_unroll]] for (uint pass = 0u; pass < kLineLanes; pass++) {
    const uint quad = first_lane + pass;
    if (in_range(key_block + quad * kQuadTokens, kQuadTokens)) find_line_sums(key_rows[quad]);
    [[unroll]] for (uint g = 0u; g < kVectors; g++) {
      line_sums[g * kLanes + lane] = logits[g];
      logits[g] = vec4(0.0);
    }
    barrier();
    if (lane == quad) {
      [[unroll]] for (uint g = 0u; g < kVectors; g++) {
        const uint at = g * kLanes + first_lane;
        weights[g * kLanes + lane] = (line_sums[at] + line_sums[at + 1u]) + (line_sums[at + 2u] + line_sums[at + 3u]);
      }
    }
    barrier();
  }
  [[unroll]] for (uint g = 0u; g < kVectors; g++) logits[g] = weights[g * kLanes + lane];
}

// A column of one value: its four dims.
uvec4 load_dense_value(uint row, uint column) {
  if (!kValueUnits) {
    uvec4 elements = uvec4(0u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
      if (4u * column + i >= kValueDim) continue;
      const uint index = row + (4u * column + i) * low(p.v.dim);
      elements[i] = kValueFormat == kF32 ? value_word(index) : HALF_OF(value_word(index >> 1), index);
    }
    return side_by_side(kValueFormat, elements);
  }
  const uint index = row + 4u * column;
  return kValueFormat == kF32 ? value_units[index / 4u] : uvec4(value_pairs[index / 4u], 0u, 0u);
}

vec4 dense_value(uvec4 words) { return dense_numbers(kValueFormat, words); }

// Bits of elements that are infinite or NaN: adding 1 to such an exponent carries.
uvec4 not_finite(uvec4 words) {
  const uint exponent = exponent_mask(kValueFormat);
  const uint one = exponent & (~exponent + 1u);
  const uint in_each = kValueFormat == kF32 ? 1u : 0x00010001u;
  const uvec4 carried = (words & exponent * in_each) + one * in_each;
  return (carried >> (kValueFormat == kF32 ? 31u : 15u) & in_each) * (kValueFormat == kF32 ? 0xffffffffu : 0xffffu);
}

// Adds what was left out because it is not finite, to the vectors that see it.
void add_infinities(uint quad) {
  [[dont_unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
    [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
      const uvec4 words = load_dense_value(value_rows[quad][t], value_column(turn));
      const vec4 all = dense_value(words);
      const bvec4 left_out = notEqual(floatBitsToUint(all), floatBitsToUint(dense_value(words & ~not_finite(words))));
      [[unroll]] for (uint g = 0u; g < kVectors; g++) {
        const float by = weights[g * kLanes + quad][t];
        if (by != 0.0) outs[g * kTurns + turn] += mix(vec4(0.0), by * all, left_out);
      }
    }
  }
}

// `quads` of the key block are in the range, from and to. Whoever adds a quad does not depend on the range, and weights
// outside of it are zero.
void add_dense_values(uvec2 quads) {
  const uint last = quads.y - 1u;
  const uint batch_quads = kQuadBatch * kGroups;
  const uint loads = kQuadTokens * kQuadBatch * kTurns;
  bool finite = true;
  for (uint batch = quads.x / batch_quads; batch <= last / batch_quads; batch++) {
    const uint first = batch * batch_quads + first_share();
    uvec4 words[kQuadTokens * 8u];  // [quad][turn][token]
    [[unroll]] for (uint i = 0u; i < loads; i++) {
      const uint quad = min(first + i / (kQuadTokens * kTurns) * kGroups, last);
      words[i] = load_dense_value(value_rows[quad][i % kQuadTokens], value_column(i / kQuadTokens % kTurns));
    }
    // What a vector does not see may be no number, and a weight of zero is not enough then.
    uvec4 odd = uvec4(0u);
    [[unroll]] for (uint i = 0u; i < loads; i++) odd |= not_finite(words[i]);
    if (odd != uvec4(0u)) {
      finite = false;
      [[unroll]] for (uint i = 0u; i < loads; i++) words[i] &= ~not_finite(words[i]);
    }
    [[unroll]] for (uint i = 0u; i < loads; i += kQuadTokens) {
      const uint quad = first + i / (kQuadTokens * kTurns) * kGroups;
      if (!kQuadsDivide && quad >= kLanes) continue;
      add_to_outs(i / kQuadTokens % kTurns, quad,
                  vec4[4](dense_value(words[i]), dense_value(words[i + 1u]), dense_value(words[i + 2u]),
                          dense_value(words[i + 3u])));
    }
  }
  if (finite) return;
  for (uint quad = quads.x / kGroups * kGroups + first_share(); quad <= last; quad += kGroups) add_infinities(quad);
}
