#include "arrays.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

namespace rota::python {
namespace {

std::string describe(const nb::dlpack::dtype& dtype) {
  const char* code = "type";
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Int: code = "int"; break;
    case nb::dlpack::dtype_code::UInt: code = "uint"; break;
    case nb::dlpack::dtype_code::Float: code = "float"; break;
    case nb::dlpack::dtype_code::Bfloat: code = "bfloat"; break;
    case nb::dlpack::dtype_code::Complex: code = "complex"; break;
    default: break;
  }
  return code + std::to_string(dtype.bits);
}

// Calls row(offset in elements, dense index) for each vector along the last dimension.
template <class Row>
void for_each_row(const Elements& elements, Row&& row) {
  std::uint64_t index = 0;
  for (std::uint64_t i = 0; i < elements.shape[0]; ++i) {
    for (std::uint64_t j = 0; j < elements.shape[1]; ++j) {
      for (std::uint64_t k = 0; k < elements.shape[2]; ++k, index += elements.shape[3]) {
        row(static_cast<std::int64_t>(i) * elements.strides[0] + static_cast<std::int64_t>(j) * elements.strides[1] +
                static_cast<std::int64_t>(k) * elements.strides[2],
            index);
      }
    }
  }
}

// Between an array and dense memory.
void copy(const Elements& elements, std::byte* dense, bool into_array) {
  const std::uint64_t bytes = elements.element_bytes;
  const std::int64_t step = elements.strides[3];
  for_each_row(elements, [&](std::int64_t offset, std::uint64_t index) {
    std::byte* const row = elements.data + offset * static_cast<std::int64_t>(bytes);
    std::byte* const packed = dense + index * bytes;
    if (step == 1) {
      into_array ? std::memcpy(row, packed, elements.shape[3] * bytes)
                 : std::memcpy(packed, row, elements.shape[3] * bytes);
      return;
    }
    for (std::uint64_t d = 0; d < elements.shape[3]; ++d) {
      std::byte* const element = row + static_cast<std::int64_t>(d) * step * static_cast<std::int64_t>(bytes);
      into_array ? std::memcpy(element, packed + d * bytes, bytes) : std::memcpy(packed + d * bytes, element, bytes);
    }
  });
}

std::uint64_t size_bytes(const Elements& elements) { return elements.count() * elements.element_bytes; }

// [token, head, dim] of memory that elements of three dimensions have.
MutView view_of(const Call::Memory& memory, const Elements& elements, DType dtype) {
  return {.buffer = memory.buffer,
          .dtype = dtype,
          .shape = {elements.shape[1], elements.shape[2], elements.shape[3]},
          .offset = memory.offset,
          .token_stride = memory.strides[1],
          .head_stride = memory.strides[2],
          .dim_stride = memory.strides[3]};
}

}  // namespace

void refuse(const char* argument, const std::string& what) {
  throw BadResult({.code = Errc::invalid_argument, .message = std::string(argument) + ": " + what});
}

DType dtype_of(const nb::dlpack::dtype& dtype, const char* name) {
  for (const DTypeInfo& known : kDTypes) {
    const auto code = known.dtype == DType::bf16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
    if (dtype.lanes == 1 && dtype.bits == known.bytes * 8 && dtype.code == static_cast<std::uint8_t>(code)) {
      return known.dtype;
    }
  }
  refuse(name, "wanted elements of float32, float16 or bfloat16, found " + describe(dtype));
}

nb::dlpack::dtype numpy_dtype(DType dtype) {
  if (dtype == DType::bf16) refuse("dtype", "NumPy has no bfloat16: give an array of another library as `out`");
  return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), static_cast<std::uint8_t>(info(dtype).bytes * 8),
          1};
}

DType dtype_named(std::string_view name, const char* argument) {
  for (const DTypeInfo& known : kDTypes) {
    if (known.name == name) return known.dtype;
  }
  refuse(argument, "wanted f32, f16 or bf16, found " + std::string(name));
}

bool Elements::is_dense() const noexcept {
  std::int64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != stride) return false;
    stride *= static_cast<std::int64_t>(shape[axis]);
  }
  return true;
}

bool Elements::may_overlap() const noexcept {
  int axes[] = {0, 1, 2, 3};
  const auto step = [&](int axis) { return strides[axis] < 0 ? -strides[axis] : strides[axis]; };
  std::ranges::sort(axes, {}, step);
  std::int64_t last = 0;  // the farthest element of the axes so far
  for (const int axis : axes) {
    if (shape[axis] <= 1) continue;
    if (step(axis) <= last) return count() > 0;
    last += step(axis) * static_cast<std::int64_t>(shape[axis] - 1);
  }
  return false;
}

bool Elements::can_be_viewed(std::uint32_t alignment) const noexcept {
  for (int axis = 0; axis < 4; ++axis) {
    if (shape[axis] != 1 && strides[axis] < 0) return false;
  }
  return reinterpret_cast<std::uintptr_t>(data) % std::max(alignment, element_bytes) == 0;
}

Elements elements_of(const Described& array, const char* name, Dimensions wanted) {
  const std::size_t found = array.shape.size();
  if (found < wanted.least || found > wanted.most) {
    const std::string range =
        std::to_string(wanted.least) + (wanted.least == wanted.most ? "" : " to " + std::to_string(wanted.most));
    refuse(name, "wanted " + range + " dimensions, found " + std::to_string(found));
  }
  Elements elements{.data = static_cast<std::byte*>(const_cast<void*>(array.data)),
                    .element_bytes = static_cast<std::uint32_t>(array.element_bytes)};
  const std::size_t missing = std::size(elements.shape) - found;
  for (std::size_t axis = 0; axis < found; ++axis) {
    elements.shape[missing + axis] = static_cast<std::uint64_t>(array.shape[axis]);
    elements.strides[missing + axis] = array.strides[axis];
  }
  std::uint64_t bytes = array.element_bytes;
  for (const std::uint64_t extent : elements.shape) bytes = detail::saturating_multiply(bytes, extent);
  if (bytes > std::numeric_limits<std::int64_t>::max()) refuse(name, "its shape has more bytes than memory can have");
  return elements;
}

Target output_or_new(const nb::object& out, nb::dlpack::dtype dtype, const std::vector<std::size_t>& shape) {
  const Dimensions wanted{.least = shape.size(), .most = shape.size()};
  nb::ndarray<nb::device::cpu> given;
  if (!out.is_none()) {
    if (!nb::try_cast(out, given, false)) throw nb::type_error("out: wanted a writable array in a CPU's memory");
    const Elements elements = elements_of(described(given), "out", wanted);
    if (!std::equal(shape.begin(), shape.end(), std::end(elements.shape) - shape.size())) {
      refuse("out", "its shape is not that of the result");
    }
    if (elements.may_overlap()) refuse("out", "its elements overlap");
    return {.array = out, .held = given, .elements = elements, .dtype = given.dtype()};
  }
  std::size_t bytes = dtype.bits / 8;
  for (const std::size_t extent : shape) bytes *= extent;
  auto memory = std::make_unique<std::byte[]>(bytes + 1);
  std::byte* const data = memory.get();
  const nb::capsule owner(memory.release(), [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); });
  const nb::ndarray<nb::numpy> made(data, shape.size(), shape.data(), owner, nullptr, dtype);
  return {.array = nb::cast(made), .held = {}, .elements = elements_of(described(made), "out", wanted), .dtype = dtype};
}

std::optional<Call::Memory> Call::viewed(const Elements& elements, std::uint32_t alignment) {
  const bool on_host = device_.info().kind == DeviceKind::cpu;
  if (!on_host || !elements.can_be_viewed(alignment) || elements.count() == 0) return {};
  std::uint64_t last = 0;
  Memory memory;
  for (int axis = 0; axis < 4; ++axis) {
    // NumPy says nothing of the stride of a dimension of one.
    memory.strides[axis] = elements.shape[axis] == 1 ? 0 : static_cast<std::uint64_t>(elements.strides[axis]);
    last += (elements.shape[axis] - 1) * memory.strides[axis];
  }
  if (elements.shape[3] == 1) memory.strides[3] = 1;
  memory.buffer = device_.wrap({elements.data, (last + 1) * elements.element_bytes}).value();
  return memory;
}

Call::Memory Call::staged(const Elements& elements, Buffer buffer) const {
  Memory memory{.buffer = std::move(buffer)};
  std::uint64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    memory.strides[axis] = stride;
    stride *= elements.shape[axis];
  }
  return memory;
}

Buffer Call::room_for(const Elements& elements) {
  return device_.allocate(std::max<std::uint64_t>(size_bytes(elements), 1)).value();
}

Call::Memory Call::input(const Elements& elements, std::uint32_t alignment) {
  if (auto memory = viewed(elements, alignment)) return *std::move(memory);
  Buffer buffer = room_for(elements);
  if (elements.is_dense()) {
    buffer.write({elements.data, size_bytes(elements)}).value();
  } else {
    std::vector<std::byte> packed(size_bytes(elements));
    copy(elements, packed.data(), false);
    buffer.write(packed).value();
  }
  return staged(elements, std::move(buffer));
}

Call::Memory Call::output(const Elements& elements, std::uint32_t alignment) {
  if (auto memory = viewed(elements, alignment)) return *std::move(memory);
  Buffer buffer = room_for(elements);
  returned_.push_back({.to = elements, .from = buffer});
  return staged(elements, std::move(buffer));
}

View Call::view(const Input& array, const char* name) {
  const Elements elements = elements_of(described(array), name);
  const DType dtype = dtype_of(array.dtype(), name);
  return view_of(input(elements), elements, dtype);
}

MutView Call::mut_view(const Target& target, const char* name) {
  const DType dtype = dtype_of(target.dtype, name);
  return view_of(output(target.elements), target.elements, dtype);
}

void Call::finish(Encoder&& encoder) {
  std::move(encoder).submit().value().wait().value();
  for (const Returned& one : returned_) {
    if (one.to.is_dense()) {
      one.from.read({one.to.data, size_bytes(one.to)}).value();
      continue;
    }
    std::vector<std::byte> packed(size_bytes(one.to));
    one.from.read(packed).value();
    copy(one.to, packed.data(), true);
  }
}

Device default_device() {
  static std::mutex mutex;
  // Never destroyed: threads of the device may outlive what Python ends.
  static std::optional<Device>* const device = new std::optional<Device>;
  static pid_t owner = 0;
  const std::scoped_lock lock(mutex);
  if (!*device || owner != getpid()) {
    *device = Device::open({}).value();
    owner = getpid();
  }
  return **device;
}

}  // namespace rota::python
