// Short ways to say in a test what Metal says in ten lines.

#pragma once

#import <Metal/Metal.h>

#include <string>
#include <vector>

#include "software_metal.h"

namespace rota::test::metal {

// Holds one reference.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T object) : object_(object) {}
  Ref(const Ref& other) : object_([other.object_ retain]) {}
  Ref& operator=(Ref other) {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { [object_ release]; }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

// Of words.
struct Buffer {
  Ref<id<MTLBuffer>> object;
  NSUInteger offset = 0;  // in bytes, when it is bound
  uint32_t& operator[](size_t i) const { return static_cast<uint32_t*>([object.get() contents])[i]; }
};

// Sources need no #include.
struct Settings {
  std::string macro, value;  // one macro
  bool fast_math = false;
  struct Constant {
    unsigned index;
    MTLDataType type;
    uint32_t value;
  };
  std::vector<Constant> constants;
  NSUInteger most_threads = 0;
};

struct Kernel {
  Ref<id<MTLComputePipelineState>> pipeline;
  std::string error;
};

struct Call {
  Kernel kernel;
  std::vector<Buffer> buffers;  // indices 0, 1, ...
  unsigned groups = 1;
  unsigned threads = 1;
  std::vector<uint32_t> params;  // constants at index 30
};

// What an encoder does around its calls.
struct Pass {
  std::vector<Call> calls;
  MTLDispatchType type = MTLDispatchTypeConcurrent;
  bool barriers = false;  // between calls
  id<MTLFence> wait = nil;
  id<MTLFence> update = nil;
  id<MTLEvent> wait_event = nil;  // for 1, before the encoder
  id<MTLEvent> signal_event = nil;
};

class Gpu {
 public:
  Gpu();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  id<MTLDevice> device() const { return device_.get(); }
  id<MTLCommandQueue> queue() const { return queue_.get(); }

  Buffer buffer(size_t words, MTLResourceOptions hazards = MTLResourceHazardTrackingModeUntracked) const;
  Ref<id<MTLSharedEvent>> event() const { return Ref<id<MTLSharedEvent>>([device() newSharedEvent]); }
  Ref<id<MTLFence>> fence() const { return Ref<id<MTLFence>>([device() newFence]); }
  Kernel kernel(const std::string& source, const std::string& name, const Settings& settings = {}) const;

  // The error of each command buffer, "" for none. All are committed before the first runs.
  std::vector<std::string> run_all(const std::vector<std::vector<Pass>>& command_buffers) const;
  std::string run(const std::vector<Pass>& passes) const { return run_all({passes})[0]; }
  std::string run(const Call& call) const { return run({Pass{.calls = {call}}}); }

 private:
  NSAutoreleasePool* pool_;
  Ref<id<MTLDevice>> device_;
  Ref<id<MTLCommandQueue>> queue_;
};

// Orders of threads and widths of simdgroups that a right kernel must pass in.
std::vector<Options> orders();

std::string without(const std::string& source, const std::string& part);

}  // namespace rota::test::metal
