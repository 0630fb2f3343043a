#pragma once

#include "c/handles.h"
#include "rota/c_store.h"
#include "rota/store.h"

// The handles of rota/c_store.h, by the rules of those of rota/c.h.

struct rota_page_store {
  rota::c::Kind kind;
  rota::PageStore store;
};

struct rota_prefix_store {
  rota::c::Kind kind;
  rota::KvCache cache;
  rota::PrefixStore store;
};

struct rota_prefix_match {
  rota::c::Kind kind;
  rota::PrefixMatch match = {};
};

namespace rota::c {

template <>
inline constexpr Kind kKind<rota_page_store> = Kind::page_store;
template <>
inline constexpr Kind kKind<rota_prefix_store> = Kind::prefix_store;
template <>
inline constexpr Kind kKind<rota_prefix_match> = Kind::prefix_match;

}  // namespace rota::c
