// Codes, scales and means of sealed pages, as words of 32 bits have them.

#include "codec/turbo/page.shared.h"

// Where a byte of the low plane, and one of the high plane, hold a cell's bits.
struct CodeBits {
  uint low_bit, low_bits;
  uint high_bit, high_bits;  // no bits: there is one plane
};

// One code of each word: words of both planes, of the same four tokens or dims.
uvec4 codes_in(uvec4 low_plane, uvec4 high_plane, CodeBits at) {
  uvec4 codes = bitfieldExtract(low_plane, int(at.low_bit), int(at.low_bits));
  if (at.high_bits != 0u) {
    codes |= bitfieldExtract(high_plane, int(at.high_bit), int(at.high_bits)) << at.low_bits;
  }
  return codes;
}

vec4 halves(uvec2 words) { return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)); }

// Pages hold no infinity and no NaN, but whoever made the page may have erred.
vec4 finite_halves(uvec2 words) {
  const uvec2 low_exponents = words & 0x7c00u;
  const uvec2 high_exponents = words & 0x7c000000u;
  words &= mix(uvec2(0xffffffffu), uvec2(0xffff0000u), equal(low_exponents, uvec2(0x7c00u)));
  words &= mix(uvec2(0xffffffffu), uvec2(0x0000ffffu), equal(high_exponents, uvec2(0x7c000000u)));
  return halves(words);
}

// Of four tokens' scales: what levels are multiplied with, and whether the page's mean is left out. A sign may be that of
// zero, which compares as no other.
vec4 scale_sizes(uvec2 scales) {
  const float level_scale = 1.0 / float(1 << kScaleExponent);
  return level_scale * finite_halves(scales & 0x7fff7fffu);
}
bvec4 without_mean(uvec2 scales) {
  return notEqual(uvec4(scales.x, scales.x >> 16, scales.y, scales.y >> 16) & kWithoutMean, uvec4(0u));
}
