// The end of every kernel: how the host's tables become arguments of the kernel, and calls of the host.

#pragma once

namespace rota_msl {

// A parameter of any type, from what the host has for it.
struct Reference {
  void* address;
  template <class T>
  operator T&() const {
    return *static_cast<T*>(address);
  }
};
struct Pointer {
  void* address;
  template <class T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};
struct Place {
  const unsigned* values;
  template <class T>
  __attribute__((no_sanitize("thread"))) operator T() const {
    if constexpr (Shape<T>::size == 1) {
      return T(values[0]);
    } else {
      T place;
      for (int i = 0; i < Shape<T>::size; ++i) place[i] = typename Shape<T>::Scalar(values[i]);
      return place;
    }
  }
};

}  // namespace rota_msl

// Constants may be computed while the library is loaded: until the host fills the slots, calls do nothing.
#define ROTA_MSL_SLOT(SYMBOL)                                                                        \
  asm(".pushsection .data.rota_msl,\"aw\"\nslot_" #SYMBOL                                            \
      ": .quad rota_msl_nothing\n.popsection\n"                                                      \
      ".pushsection .text\n.globl " #SYMBOL "\n.hidden " #SYMBOL "\n" #SYMBOL ": jmp *slot_" #SYMBOL \
      "(%rip)\n.popsection\n");
#define ROTA_MSL_ACCESS_SLOT(NAME) ROTA_MSL_SLOT(__tsan_##NAME)
#define ROTA_MSL_THREAD_SLOT(NAME) ROTA_MSL_SLOT(rota_msl_##NAME)
asm(".pushsection .data.rota_msl,\"aw\"\n.balign 8\n.globl rota_msl_hooks\nrota_msl_hooks:\n.popsection\n"
    ".pushsection .text\n.globl __tsan_init\n.hidden __tsan_init\n__tsan_init:\nrota_msl_nothing: ret\n.popsection\n");
ROTA_MSL_ACCESS_HOOKS(ROTA_MSL_ACCESS_SLOT)
ROTA_MSL_THREAD_HOOKS(ROTA_MSL_THREAD_SLOT)
