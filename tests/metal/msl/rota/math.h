// Functions of numbers, for scalars and vectors alike.

#pragma once

namespace rota_msl {

template <class F, class V, class... Rest>
inline V each(F function, V first, Rest... rest) {
  if constexpr (Shape<V>::size == 1) {
    return function(first, rest...);
  } else {
    V result;
    for (int i = 0; i < Shape<V>::size; ++i) result[i] = function(first[i], rest[i]...);
    return result;
  }
}

template <class T>
inline constexpr bool is_real = __is_same(T, float) || __is_same(T, half);
template <class T>
inline constexpr bool is_signed = T(-1) < T(0);

// An integer type as wide as T without a sign, because MSL lets signed arithmetic wrap.
template <class T>
using Unsigned = __make_unsigned(T);

}  // namespace rota_msl

namespace metal {

#define ROTA_MSL_FLOAT_FUNCTION(NAME, VALUE)                                           \
  template <class V>                                                                   \
  inline V NAME(V value) {                                                             \
    typedef typename rota_msl::Shape<V>::Scalar T;                                     \
    static_assert(rota_msl::is_real<T>, #NAME " of a type that is not float or half"); \
    return rota_msl::each(                                                             \
        [](T t) {                                                                      \
          float x = float(t);                                                          \
          return T(VALUE);                                                             \
        },                                                                             \
        value);                                                                        \
  }
// clang-format off
#define ROTA_MSL_FLOAT_FUNCTIONS(X)                                                                         \
  X(sqrt, __builtin_sqrtf(x)) X(rsqrt, 1.0f / __builtin_sqrtf(x)) X(exp, __builtin_expf(x))                 \
  X(exp2, __builtin_exp2f(x)) X(exp10, __builtin_exp10f(x)) X(log, __builtin_logf(x))                       \
  X(log2, __builtin_log2f(x)) X(log10, __builtin_log10f(x)) X(sin, __builtin_sinf(x))                       \
  X(cos, __builtin_cosf(x)) X(tan, __builtin_tanf(x)) X(tanh, __builtin_tanhf(x)) X(fabs, __builtin_fabsf(x)) \
  X(floor, __builtin_floorf(x)) X(ceil, __builtin_ceilf(x)) X(trunc, __builtin_truncf(x))                   \
  X(round, __builtin_roundf(x)) X(rint, __builtin_rintf(x)) X(fract, x - __builtin_floorf(x))
// clang-format on
ROTA_MSL_FLOAT_FUNCTIONS(ROTA_MSL_FLOAT_FUNCTION)

#define ROTA_MSL_TEST(NAME, VALUE)            \
  inline bool NAME(float x) { return VALUE; } \
  inline bool NAME(half h) {                  \
    float x = float(h);                       \
    return VALUE;                             \
  }                                           \
  template <int N>                            \
  inline vec<int, N> NAME(vec<float, N> v) {  \
    vec<int, N> result;                       \
    for (int i = 0; i < N; ++i) {             \
      float x = v[i];                         \
      result[i] = VALUE;                      \
    }                                         \
    return result;                            \
  }
ROTA_MSL_TEST(isnan, __builtin_isnan(x))
ROTA_MSL_TEST(isinf, __builtin_isinf(x))
ROTA_MSL_TEST(isfinite, __builtin_isfinite(x))
ROTA_MSL_TEST(signbit, __builtin_signbit(x))
#undef ROTA_MSL_TEST

template <class V>
inline V fma(V a, V b, V c) {
  return __builtin_elementwise_fma(a, b, c);
}
inline half fma(half a, half b, half c) { return half(__builtin_fmaf(a, b, c)); }
template <class V>
inline V pow(V a, V b) {
  return rota_msl::each([](float x, float y) { return __builtin_powf(x, y); }, a, b);
}
template <class V>
inline V powr(V a, V b) {
  return pow(a, b);
}
template <class V>
inline V fmod(V a, V b) {
  return rota_msl::each([](float x, float y) { return __builtin_fmodf(x, y); }, a, b);
}
template <class V>
inline V copysign(V a, V b) {
  return rota_msl::each([](float x, float y) { return __builtin_copysignf(x, y); }, a, b);
}
template <class V, class I>
inline V ldexp(V a, I b) {
  return rota_msl::each([](float x, int y) { return __builtin_ldexpf(x, y); }, a, b);
}

// Of a NaN and a number, min and max yield the number; those of fast:: may yield either.
template <class V>
inline V max(V a, V b) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  if constexpr (rota_msl::is_real<T>) {
    return rota_msl::each([](T x, T y) { return x != x ? y : y != y ? x : x < y ? y : x; }, a, b);
  } else {
    return rota_msl::each([](T x, T y) { return x < y ? y : x; }, a, b);
  }
}
template <class V>
inline V min(V a, V b) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  if constexpr (rota_msl::is_real<T>) {
    return rota_msl::each([](T x, T y) { return x != x ? y : y != y ? x : y < x ? y : x; }, a, b);
  } else {
    return rota_msl::each([](T x, T y) { return y < x ? y : x; }, a, b);
  }
}
template <class V>
inline V fmax(V a, V b) {
  return max(a, b);
}
template <class V>
inline V fmin(V a, V b) {
  return min(a, b);
}
template <class V>
inline V clamp(V value, V low, V high) {
  return min(max(value, low), high);
}
template <class V>
inline V mix(V a, V b, V t) {
  return a + (b - a) * t;
}
template <class V>
inline V saturate(V value) {
  return clamp(value, V(0.0f), V(1.0f));
}
template <class V>
inline V step(V edge, V value) {
  return rota_msl::each([](float e, float x) { return x < e ? 0.0f : 1.0f; }, edge, value);
}
template <class V>
inline V sign(V value) {
  return rota_msl::each([](float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == x ? x : 0.0f; }, value);
}
template <class V>
inline V abs(V value) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  if constexpr (rota_msl::is_real<T>) {
    return fabs(value);
  } else {
    typedef rota_msl::Unsigned<T> U;
    return rota_msl::each([](T x) { return x < T(0) ? T(U(0) - U(x)) : x; }, value);
  }
}
template <class V>
inline auto dot(V a, V b) {
  typename rota_msl::Shape<V>::Scalar sum = a[0] * b[0];
  for (int i = 1; i < rota_msl::Shape<V>::size; ++i) sum += a[i] * b[i];
  return sum;
}

template <class V, class C>
inline V select(V no, V yes, C condition) {
  if constexpr (rota_msl::Shape<C>::size == 1) {
    return condition ? yes : no;
  } else {
    V result;
    for (int i = 0; i < rota_msl::Shape<V>::size; ++i) result[i] = condition[i] ? yes[i] : no[i];
    return result;
  }
}
inline bool all(bool condition) { return condition; }
inline bool any(bool condition) { return condition; }
template <class T, int N>
inline bool all(vec<T, N> condition) {
  bool result = true;
  for (int i = 0; i < N; ++i) result = result && condition[i];
  return result;
}
template <class T, int N>
inline bool any(vec<T, N> condition) {
  bool result = false;
  for (int i = 0; i < N; ++i) result = result || condition[i];
  return result;
}

template <class V>
inline V clz(V value) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  typedef rota_msl::Unsigned<T> U;
  constexpr int bits = int(sizeof(T)) * 8;
  return rota_msl::each([](T x) { return T(U(x) == 0 ? bits : __builtin_clzll(U(x)) - (64 - bits)); }, value);
}
template <class V>
inline V ctz(V value) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  typedef rota_msl::Unsigned<T> U;
  return rota_msl::each([](T x) { return T(U(x) == 0 ? int(sizeof(T)) * 8 : __builtin_ctzll(U(x))); }, value);
}
template <class V>
inline V popcount(V value) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  return rota_msl::each([](T x) { return T(__builtin_popcountll(rota_msl::Unsigned<T>(x))); }, value);
}
template <class V>
inline V reverse_bits(V value) {
  return __builtin_elementwise_bitreverse(value);
}
template <class V>
inline V mulhi(V a, V b) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  if constexpr (rota_msl::is_signed<T>) {
    return rota_msl::each([](T x, T y) { return T((__int128(x) * y) >> (sizeof(T) * 8)); }, a, b);
  } else {
    return rota_msl::each([](T x, T y) { return T(((unsigned __int128)(x)*y) >> (sizeof(T) * 8)); }, a, b);
  }
}
template <class V>
inline V rotate(V value, V by) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  typedef rota_msl::Unsigned<T> U;
  constexpr U mask = sizeof(T) * 8 - 1;
  return rota_msl::each([](T x, T n) { return T((U(x) << (U(n) & mask)) | (U(x) >> ((U(0) - U(n)) & mask))); }, value,
                        by);
}
template <class V>
inline V extract_bits(V value, uint offset, uint bits) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  typedef rota_msl::Unsigned<T> U;
  constexpr uint width = sizeof(T) * 8;
  return rota_msl::each(
      [=](T x) {
        if (bits == 0) return T(0);
        return T(T(U(x) << ((width - offset - bits) & (width - 1))) >> ((width - bits) & (width - 1)));
      },
      value);
}
template <class V>
inline V insert_bits(V base, V insert, uint offset, uint bits) {
  typedef typename rota_msl::Shape<V>::Scalar T;
  typedef rota_msl::Unsigned<T> U;
  const U ones = bits >= sizeof(T) * 8 ? ~U(0) : U((U(1) << bits) - 1);
  const U mask = U(ones << (offset & (sizeof(T) * 8 - 1)));
  return rota_msl::each([=](T b, T i) { return T((U(b) & ~mask) | ((U(i) << (offset & (sizeof(T) * 8 - 1))) & mask)); },
                        base, insert);
}

namespace precise {
#define ROTA_MSL_USE(NAME, VALUE) using metal::NAME;
ROTA_MSL_FLOAT_FUNCTIONS(ROTA_MSL_USE)
using metal::clamp, metal::fma, metal::max, metal::min, metal::pow, metal::powr, metal::fmax, metal::fmin;
}  // namespace precise

namespace fast {
ROTA_MSL_FLOAT_FUNCTIONS(ROTA_MSL_USE)
using metal::fma, metal::pow, metal::powr;
template <class V>
inline V max(V a, V b) {
  return rota_msl::each([](auto x, auto y) { return x < y ? y : x; }, a, b);
}
template <class V>
inline V min(V a, V b) {
  return rota_msl::each([](auto x, auto y) { return y < x ? y : x; }, a, b);
}
template <class V>
inline V clamp(V value, V low, V high) {
  return fast::min(fast::max(value, low), high);
}
}  // namespace fast
#undef ROTA_MSL_USE
#undef ROTA_MSL_FLOAT_FUNCTION
#undef ROTA_MSL_FLOAT_FUNCTIONS

}  // namespace metal
