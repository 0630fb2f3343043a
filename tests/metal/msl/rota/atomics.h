// Atomic operations: the host learns of the access, and since it runs one thread at a time, plain arithmetic is atomic.

#pragma once

extern "C" __attribute__((visibility("hidden"))) void rota_msl_atomic(const void* address, unsigned long bytes,
                                                                      int kind);

namespace rota_msl {

template <class T, class F>
__attribute__((no_sanitize("thread"), noinline)) T modify(volatile T* at, F change) {
  rota_msl_atomic(const_cast<const T*>(at), sizeof(T), int(Atomic::write));
  const T old = *at;
  *at = change(old);
  return old;
}

template <class T>
__attribute__((no_sanitize("thread"), noinline)) T load(const volatile T* at) {
  rota_msl_atomic(const_cast<const T*>(at), sizeof(T), int(Atomic::read));
  return *at;
}

// Keeps a parameter from taking part in deduction, so that atomic_fetch_add_explicit(&counter, 1, ...) compiles.
template <class T>
struct Same {
  typedef T Type;
};

}  // namespace rota_msl

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;

template <class T>
inline T atomic_load_explicit(const volatile atomic<T>* at, memory_order) {
  return rota_msl::load(&at->value);
}

#define ROTA_MSL_ATOMIC(NAME, RESULT, VALUE)                                                                         \
  template <class T>                                                                                                 \
  inline RESULT atomic_##NAME##_explicit(volatile atomic<T>* at, typename rota_msl::Same<T>::Type x, memory_order) { \
    return RESULT(rota_msl::modify(&at->value, [x](T old) { return T(VALUE); }));                                    \
  }
ROTA_MSL_ATOMIC(store, void, x)
ROTA_MSL_ATOMIC(exchange, T, x)
ROTA_MSL_ATOMIC(fetch_add, T, old + x)
ROTA_MSL_ATOMIC(fetch_sub, T, old - x)
ROTA_MSL_ATOMIC(fetch_and, T, old& x)
ROTA_MSL_ATOMIC(fetch_or, T, old | x)
ROTA_MSL_ATOMIC(fetch_xor, T, old ^ x)
ROTA_MSL_ATOMIC(fetch_max, T, old < x ? x : old)
ROTA_MSL_ATOMIC(fetch_min, T, x < old ? x : old)
#undef ROTA_MSL_ATOMIC

template <class T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* at, T* expected,
                                                  typename rota_msl::Same<T>::Type desired, memory_order,
                                                  memory_order) {
  const T wanted = *expected;
  const T old = rota_msl::modify(&at->value, [=](T now) { return now == wanted ? desired : now; });
  *expected = old;
  return old == wanted;
}

}  // namespace metal
