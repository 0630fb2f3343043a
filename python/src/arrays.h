#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <rota/rota.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Arrays of other libraries, by DLPack or the buffer protocol, as views of a device.

namespace rota::python {

namespace nb = nanobind;

using Input = nb::ndarray<nb::ro, nb::device::cpu>;

// The array's element type. An error names the argument.
DType dtype_of(const nb::dlpack::dtype& dtype, const char* name);

// The inverse, for new arrays. NumPy has no bf16: an error.
nb::dlpack::dtype numpy_dtype(DType dtype);

// The type with that name: "f32", "f16" or "bf16". An error names the argument.
DType dtype_named(std::string_view name, const char* argument);

// An argument's error.
[[noreturn]] void refuse(const char* argument, const std::string& what);

// Where elements of an array with four dimensions or fewer are: missing dimensions in front are 1.
struct Elements {
  std::byte* data = nullptr;
  std::uint32_t element_bytes = 0;
  std::uint64_t shape[4] = {1, 1, 1, 1};
  std::int64_t strides[4] = {0, 0, 0, 1};  // elements

  // At most 2^63 bytes in all: elements_of() refuses more.
  std::uint64_t count() const noexcept { return shape[0] * shape[1] * shape[2] * shape[3]; }
  bool is_dense() const noexcept;
  // Whether one address may be that of two elements, as in an array that was broadcast.
  bool may_overlap() const noexcept;
  // Whether a view may have them as they are: no stride is negative, and addresses are multiples of `alignment`.
  bool can_be_viewed(std::uint32_t alignment) const noexcept;
};

// What DLPack says of an array, without the array's reference count: it is read without Python's lock.
struct Described {
  const void* data;
  std::span<const std::int64_t> shape, strides;
  std::size_t element_bytes;
};
template <class... Args>
Described described(const nb::ndarray<Args...>& array) {
  return {array.data(), {array.shape_ptr(), array.ndim()}, {array.stride_ptr(), array.ndim()}, array.itemsize()};
}

// How many dimensions an argument may have.
struct Dimensions {
  std::size_t least = 3, most = 3;
};

// An error names the argument.
Elements elements_of(const Described& array, const char* name, Dimensions wanted = {});

// An array that a call writes to: the caller's own, or a new one of NumPy's.
struct Target {
  nb::object array;
  nb::ndarray<nb::device::cpu> held;  // keeps the memory where it is
  Elements elements;
  nb::dlpack::dtype dtype;
};

// `out` if it is not None, and it is not copied: one that nanobind would have to convert is refused. Otherwise a new
// array of that type and shape.
Target output_or_new(const nb::object& out, nb::dlpack::dtype dtype, const std::vector<std::size_t>& shape);

// The arrays of one call, as memory of its device. A CPU has them as they are. For others, and where elements are not
// aligned, they are copied: outputs come back when the call is done.
class Call {
 public:
  explicit Call(Device device) : device_(std::move(device)) {}

  struct Memory {
    Buffer buffer;
    std::uint64_t offset = 0;  // elements, as the strides
    std::uint64_t strides[4] = {};
  };
  Memory input(const Elements& elements, std::uint32_t alignment = 1);
  Memory output(const Elements& elements, std::uint32_t alignment = 1);

  // [token, head, dim]
  View view(const Input& array, const char* name);
  MutView mut_view(const Target& target, const char* name);

  // Runs work(encoder), submits, waits and brings outputs back.
  template <class Work>
  void run(Work&& work) {
    Encoder encoder = device_.encoder();
    work(encoder);
    finish(std::move(encoder));
  }

  Device& device() noexcept { return device_; }

 private:
  struct Returned {
    Elements to;
    Buffer from;
  };
  void finish(Encoder&& encoder);
  // The array's own memory, if the device can have it as it is.
  std::optional<Memory> viewed(const Elements& elements, std::uint32_t alignment);
  Buffer room_for(const Elements& elements);
  Memory staged(const Elements& elements, Buffer buffer) const;

  Device device_;
  std::vector<Returned> returned_;
};

// Runs work(call, encoder) on the device, without Python's lock: it takes what `work` refers to, and makes nothing of
// Python's.
template <class Work>
void run_unlocked(Device device, Work&& work) {
  const nb::gil_scoped_release unlocked;
  Call call(std::move(device));
  call.run([&](Encoder& encoder) { work(call, encoder); });
}

// The process's CPU device, with all its threads. A child of fork() gets its own.
Device default_device();
inline Device device_or_default(const std::optional<Device>& device) { return device ? *device : default_device(); }

}  // namespace rota::python
