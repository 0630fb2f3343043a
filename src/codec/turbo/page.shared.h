// Where everything lies in one head's page, for C++ and GLSL alike: nothing else computes an offset into a page.
// docs/page-format.md explains it.

#ifndef ROTA_CODEC_TURBO_PAGE_SHARED_H
#define ROTA_CODEC_TURBO_PAGE_SHARED_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

constexpr uint kTileTokens = 64u;
constexpr uint kLineBytes = 64u;  // side tables and bit planes begin on whole lines
constexpr uint kKeys = 0u;
constexpr uint kValues = 1u;

// Scales are stored times 2^4: so the smallest f16 numbers have one, and the largest still do.
constexpr int kScaleExponent = 4;

// A scale's sign: this token was sealed with the mean left in it.
constexpr uint kWithoutMean = 0x8000u;

// As a page's format, in numbers.
struct PageLayout {
  uint side;
  uint bits;
  uint dim;
  uint tokens;
  uint has_mean;
};

// Codes of 3, 5 and 6 bits lie in two planes: 2 + 1, 4 + 1 and 4 + 2, low bits first. A macro for GLSL, where no
// function of a specialization constant is one.
#define ROTA_LOW_PLANE_BITS(bits) ((bits) == 3u ? 2u : (bits) == 5u || (bits) == 6u ? 4u : (bits))
ROTA_SHARED_CONSTANT uint low_plane_bits(uint bits) { return ROTA_LOW_PLANE_BITS(bits); }

// Cells that share a line of the high plane, or of the only one: a group, which is decoded together.
ROTA_SHARED_CONSTANT uint group_cells(uint bits) {
  return 8u / (low_plane_bits(bits) == bits ? bits : bits - low_plane_bits(bits));
}

// Planes follow each other within a tile, tiles within a page. `first_bit` is of the codes.
struct Plane {
  uint first_bit;
  uint bits;
};

ROTA_SHARED uint plane_count(uint bits) { return low_plane_bits(bits) == bits ? 1u : 2u; }

ROTA_SHARED Plane plane_of(uint bits, uint index) {
  const uint low_bits = low_plane_bits(bits);
  return index == 0u ? Plane(0u, low_bits) : Plane(low_bits, bits - low_bits);
}

// All in bytes from the page's start. The mean comes first: `dim` f16 numbers, then zeros to the end of a line.
ROTA_SHARED uint scales_offset(PageLayout page) {
  return page.has_mean == 0u ? 0u : (2u * page.dim + kLineBytes - 1u) / kLineBytes * kLineBytes;
}

ROTA_SHARED uint tiles_offset(PageLayout page) { return scales_offset(page) + 2u * page.tokens; }

ROTA_SHARED uint tile_bytes(PageLayout page) { return kTileTokens / 8u * page.dim * page.bits; }

ROTA_SHARED uint layout_bytes(PageLayout page) {
  return tiles_offset(page) + page.tokens / kTileTokens * tile_bytes(page);
}

ROTA_SHARED uint plane_offset(PageLayout page, uint tile, uint index) {
  return tiles_offset(page) + tile * tile_bytes(page) +
         kTileTokens / 8u * page.dim * plane_of(page.bits, index).first_bit;
}

// Half a tile: no line, and so no word, holds codes of two slices. Their bytes follow each other within a plane.
constexpr uint kSliceTokens = 32u;

ROTA_SHARED uint slice_bytes(PageLayout page, uint index) {
  return kSliceTokens / 8u * page.dim * plane_of(page.bits, index).bits;
}

ROTA_SHARED uint slice_offset(PageLayout page, uint first_token, uint index) {
  return plane_offset(page, first_token / kTileTokens, index) +
         first_token % kTileTokens / kSliceTokens * slice_bytes(page, index);
}

// A line's byte x holds one value of each of 8 / bits cells, the first in its lowest bits.
struct CodePlace {
  uint byte;     // from the page's start
  uint low_bit;  // in that byte
};

ROTA_SHARED CodePlace code_place(PageLayout page, uint index, uint token, uint dim) {
  const Plane plane = plane_of(page.bits, index);
  const uint cells = 8u / plane.bits;
  const uint t = token % kTileTokens;
  uint line, cell, lane;
  if (page.side == kKeys) {
    const uint nth = t / 16u * (page.dim / 4u) + dim / 4u;
    line = nth / cells;
    cell = nth % cells;
    lane = t % 16u * 4u + dim % 4u;
  } else {
    line = t / 4u / cells * (page.dim / 16u) + dim / 16u;
    cell = t / 4u % cells;
    lane = dim % 16u * 4u + t % 4u;
  }
  return CodePlace(plane_offset(page, token / kTileTokens, index) + line * kLineBytes + lane, cell * plane.bits);
}

ROTA_PARAMS_END

#endif
