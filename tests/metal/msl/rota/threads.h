// Barriers and operations of a simdgroup: the host switches to another thread until all have arrived.

#pragma once

// Where a call is made tells the host which call it is: the compiler must not copy or merge calls.
#define ROTA_MSL_COLLECTIVE __attribute__((convergent, nomerge, visibility("hidden")))

extern "C" {
ROTA_MSL_COLLECTIVE void rota_msl_threadgroup_barrier(int flags);
ROTA_MSL_COLLECTIVE void rota_msl_simdgroup_barrier(int flags);
// Copies the value, waits for the simdgroup, and returns the values of all lanes, 16 bytes apart.
ROTA_MSL_COLLECTIVE const void* rota_msl_simd_exchange(const void* value, unsigned long bytes);
__attribute__((visibility("hidden"))) unsigned rota_msl_lane(void);
__attribute__((visibility("hidden"))) unsigned rota_msl_lanes(void);
}

#define ROTA_MSL_INLINE __attribute__((always_inline, convergent, nomerge)) inline

namespace rota_msl {

template <class T>
struct Lanes {
  const char* values;
  __attribute__((no_sanitize("thread"), noinline)) T operator[](unsigned lane) const {
    return *reinterpret_cast<const T*>(values + lane * 16);
  }
};

template <class T>
ROTA_MSL_INLINE Lanes<T> exchange(T value) {
  static_assert(sizeof(T) <= 16, "a value of a simdgroup's operation has at most 16 bytes");
  return Lanes<T>{static_cast<const char*>(rota_msl_simd_exchange(&value, sizeof(T)))};
}

// A lane that does not exist has no value: the lane's own is as good as any.
template <class T>
ROTA_MSL_INLINE T value_of(T own, unsigned lane) {
  const Lanes<T> lanes = exchange(own);
  return lane < rota_msl_lanes() ? lanes[lane] : own;
}

template <class T, class F>
ROTA_MSL_INLINE T fold(T own, unsigned end, F combine) {
  const Lanes<T> lanes = exchange(own);
  T result = lanes[0];
  for (unsigned i = 1; i < end; ++i) result = combine(result, lanes[i]);
  return result;
}

}  // namespace rota_msl

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

ROTA_MSL_INLINE void threadgroup_barrier(mem_flags flags) { rota_msl_threadgroup_barrier(int(flags)); }
ROTA_MSL_INLINE void simdgroup_barrier(mem_flags flags) { rota_msl_simdgroup_barrier(int(flags)); }

template <class T>
ROTA_MSL_INLINE T simd_shuffle(T value, ushort lane) {
  return rota_msl::value_of(value, lane);
}
template <class T>
ROTA_MSL_INLINE T simd_broadcast(T value, ushort lane) {
  return rota_msl::value_of(value, lane);
}
template <class T>
ROTA_MSL_INLINE T simd_broadcast_first(T value) {
  return rota_msl::value_of(value, 0);
}
template <class T>
ROTA_MSL_INLINE T simd_shuffle_xor(T value, ushort mask) {
  return rota_msl::value_of(value, rota_msl_lane() ^ mask);
}
template <class T>
ROTA_MSL_INLINE T simd_shuffle_down(T value, ushort by) {
  return rota_msl::value_of(value, rota_msl_lane() + by);
}
template <class T>
ROTA_MSL_INLINE T simd_shuffle_up(T value, ushort by) {
  return rota_msl::value_of(value, rota_msl_lane() - by);
}

#define ROTA_MSL_FOLD(NAME, VALUE)                                                     \
  template <class T>                                                                   \
  ROTA_MSL_INLINE T simd_##NAME(T value) {                                             \
    return rota_msl::fold(value, rota_msl_lanes(), [](T a, T b) { return T(VALUE); }); \
  }
ROTA_MSL_FOLD(sum, a + b)
ROTA_MSL_FOLD(product, a* b)
ROTA_MSL_FOLD(max, metal::max(a, b))
ROTA_MSL_FOLD(min, metal::min(a, b))
ROTA_MSL_FOLD(and, a& b)
ROTA_MSL_FOLD(or, a | b)
ROTA_MSL_FOLD(xor, a ^ b)
#undef ROTA_MSL_FOLD

template <class T>
ROTA_MSL_INLINE T simd_prefix_inclusive_sum(T value) {
  return rota_msl::fold(value, rota_msl_lane() + 1, [](T a, T b) { return T(a + b); });
}
template <class T>
ROTA_MSL_INLINE T simd_prefix_exclusive_sum(T value) {
  const rota_msl::Lanes<T> lanes = rota_msl::exchange(value);
  T sum = T(0);
  for (unsigned i = 0; i < rota_msl_lane(); ++i) sum += lanes[i];
  return sum;
}
ROTA_MSL_INLINE bool simd_any(bool value) { return simd_or(uint(value)) != 0; }
ROTA_MSL_INLINE bool simd_all(bool value) { return simd_and(uint(value)) != 0; }
ROTA_MSL_INLINE bool simd_is_first() { return rota_msl_lane() == 0; }

struct simd_vote {
  typedef ulong vote_t;
  vote_t lanes;
  explicit operator vote_t() const { return lanes; }
  bool all() const { return lanes + 1 == 0 || lanes == (vote_t(1) << rota_msl_lanes()) - 1; }
  bool any() const { return lanes != 0; }
};
ROTA_MSL_INLINE simd_vote simd_ballot(bool value) {
  const rota_msl::Lanes<uint> values = rota_msl::exchange(uint(value));
  simd_vote vote = {0};
  for (unsigned i = 0; i < rota_msl_lanes(); ++i) vote.lanes |= ulong(values[i]) << i;
  return vote;
}

}  // namespace metal
