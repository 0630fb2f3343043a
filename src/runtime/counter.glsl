// For kernels: adds to a Counter's number, whose low word is at `index`. The twin of runtime/counter.h.
#define ADD_TO_COUNTER(words, index, count)                                      \
  do {                                                                           \
    if ((count) != 0u) {                                                         \
      const uint low_before = atomicAdd(words[index], count);                    \
      if (low_before + (count) < low_before) atomicAdd(words[(index) + 1u], 1u); \
    }                                                                            \
  } while (false)
