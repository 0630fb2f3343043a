// Scalars, vectors and matrices. A vector of bool is one of int, because that is what comparing vectors yields.

#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned long size_t;

#define ROTA_MSL_VECTORS(NAME, SCALAR)                        \
  typedef SCALAR NAME##2 __attribute__((ext_vector_type(2))); \
  typedef SCALAR NAME##3 __attribute__((ext_vector_type(3))); \
  typedef SCALAR NAME##4 __attribute__((ext_vector_type(4)));
ROTA_MSL_VECTORS(float, float)
ROTA_MSL_VECTORS(half, half)
ROTA_MSL_VECTORS(char, signed char)
ROTA_MSL_VECTORS(uchar, uchar)
ROTA_MSL_VECTORS(short, short)
ROTA_MSL_VECTORS(ushort, ushort)
ROTA_MSL_VECTORS(int, int)
ROTA_MSL_VECTORS(uint, uint)
ROTA_MSL_VECTORS(long, long)
ROTA_MSL_VECTORS(ulong, ulong)
ROTA_MSL_VECTORS(bool, int)
#undef ROTA_MSL_VECTORS

namespace rota_msl {

template <class T>
struct Shape {
  typedef T Scalar;
  static constexpr int size = 1;
};
template <class T, int N>
struct Shape<T __attribute__((ext_vector_type(N)))> {
  typedef T Scalar;
  static constexpr int size = N;
};

template <class V, class A>
inline void append(V& to, int& at, const A& value) {
  if constexpr (Shape<A>::size == 1) {
    to[at++] = typename Shape<V>::Scalar(value);
  } else {
    for (int i = 0; i < Shape<A>::size; ++i) to[at++] = typename Shape<V>::Scalar(value[i]);
  }
}

// float4(x), float4(x, y, z, w), float4(xy, zw), float4(int4)
template <class V, class A, class... Rest>
constexpr V make(A first, Rest... rest) {
  typedef typename Shape<V>::Scalar Scalar;
  if constexpr (sizeof...(Rest) == 0) {
    if constexpr (Shape<A>::size == 1) {
      return V(Scalar(first));
    } else {
      static_assert(Shape<A>::size == Shape<V>::size, "a vector is made from one of another size");
      return __builtin_convertvector(first, V);
    }
  } else {
    static_assert((Shape<A>::size + ... + Shape<Rest>::size) == Shape<V>::size, "values do not fill the vector");
    if constexpr (((Shape<A>::size == 1) && ... && (Shape<Rest>::size == 1))) {
      return V{Scalar(first), Scalar(rest)...};
    } else {
      V made;
      int at = 0;
      append(made, at, first);
      (append(made, at, rest), ...);
      return made;
    }
  }
}

}  // namespace rota_msl

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <class T, class A>
inline T as_type(A value) {
  static_assert(sizeof(T) == sizeof(A), "as_type between types of different sizes");
  return __builtin_bit_cast(T, value);
}

template <class T, int Cols, int Rows>
struct matrix {
  vec<T, Rows> columns[Cols];
  matrix() = default;
  explicit matrix(T diagonal) {
    for (int c = 0; c < Cols; ++c) {
      for (int r = 0; r < Rows; ++r) columns[c][r] = c == r ? diagonal : T(0);
    }
  }
  template <class... Columns>
  matrix(vec<T, Rows> first, Columns... rest) : columns{first, rest...} {
    static_assert(sizeof...(Columns) + 1 == Cols, "columns do not fill the matrix");
  }
  vec<T, Rows>& operator[](int column) { return columns[column]; }
  const vec<T, Rows>& operator[](int column) const { return columns[column]; }
};

template <class T, int Cols, int Rows>
inline matrix<T, Rows, Cols> transpose(const matrix<T, Cols, Rows>& m) {
  matrix<T, Rows, Cols> turned;
  for (int c = 0; c < Cols; ++c) {
    for (int r = 0; r < Rows; ++r) turned[r][c] = m[c][r];
  }
  return turned;
}

template <class T, int Cols, int Rows>
inline vec<T, Rows> operator*(const matrix<T, Cols, Rows>& m, vec<T, Cols> v) {
  vec<T, Rows> product = m[0] * v[0];
  for (int c = 1; c < Cols; ++c) product += m[c] * v[c];
  return product;
}

typedef matrix<float, 2, 2> float2x2;
typedef matrix<float, 3, 3> float3x3;
typedef matrix<float, 4, 4> float4x4;
typedef matrix<half, 4, 4> half4x4;

// A vector without the alignment of one.
template <class T, int N>
struct packed {
  T elements[N];
  packed() = default;
  packed(vec<T, N> v) {
    for (int i = 0; i < N; ++i) elements[i] = v[i];
  }
  operator vec<T, N>() const {
    vec<T, N> v;
    for (int i = 0; i < N; ++i) v[i] = elements[i];
    return v;
  }
  T& operator[](int i) { return elements[i]; }
  const T& operator[](int i) const { return elements[i]; }
};

#define ROTA_MSL_PACKED(T)            \
  typedef packed<T, 2> packed_##T##2; \
  typedef packed<T, 3> packed_##T##3; \
  typedef packed<T, 4> packed_##T##4;
ROTA_MSL_PACKED(float)
ROTA_MSL_PACKED(half)
ROTA_MSL_PACKED(uint)
ROTA_MSL_PACKED(int)
ROTA_MSL_PACKED(ushort)
ROTA_MSL_PACKED(short)
ROTA_MSL_PACKED(uchar)
#undef ROTA_MSL_PACKED

}  // namespace metal
