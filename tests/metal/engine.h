// An engine that uses Metal itself, as plain C++ sees it: objects of Metal's are void*.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rota::test::metal {

enum class Storage { shared, hidden };  // hidden: Metal's private
enum class Hazards { tracked, untracked };

// A buffer. It goes with the last who holds it.
class EngineMemory {
 public:
  explicit EngineMemory(void* buffer) : buffer_(buffer) {}  // takes the reference over
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  void* buffer() const { return buffer_; }
  size_t size_bytes() const;
  float* host() const;
  std::vector<float> floats() const { return {host(), host() + size_bytes() / sizeof(float)}; }

 private:
  void* buffer_;
};

// A value of Metal's that the host and command buffers signal and wait for.
class EngineEvent {
 public:
  explicit EngineEvent(void* event) : event_(event) {}
  ~EngineEvent();
  EngineEvent(const EngineEvent&) = delete;
  EngineEvent& operator=(const EngineEvent&) = delete;

  void* event() const { return event_; }
  uint64_t value() const;
  void signal(uint64_t value) const;

 private:
  void* event_;
};

class Engine;

struct EngineOrder {
  bool serial = false;                 // commands run one after the other
  const EngineEvent* after = nullptr;  // all of it comes after this event's 1
};

// A command buffer and its open encoder.
class EngineCommands {
 public:
  EngineCommands(const Engine& engine, const EngineOrder& order);
  ~EngineCommands();  // ends the encoder; what was not committed is gone
  EngineCommands(const EngineCommands&) = delete;
  EngineCommands& operator=(const EngineCommands&) = delete;

  void* buffer() const { return buffer_; }
  void* encoder() const { return encoder_; }

  void fill(const EngineMemory& memory, float value);
  void copy(const EngineMemory& from, const EngineMemory& to);
  void barrier();
  void commit();
  std::string error();  // waits for the end of what was committed; "": none

 private:
  void end();

  const Engine& engine_;
  void* buffer_;
  void* encoder_;  // null once it has ended
};

class Engine {
 public:
  explicit Engine(unsigned device = 0);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void* device() const { return device_; }
  void* queue() const { return queue_; }

  std::shared_ptr<EngineMemory> allocate(size_t bytes, Storage storage = Storage::shared,
                                         Hazards hazards = Hazards::untracked) const;
  std::unique_ptr<EngineEvent> make_event() const;

  // Retains nothing of what its encoder binds.
  std::unique_ptr<EngineCommands> begin(const EngineOrder& order = {}) const {
    return std::make_unique<EngineCommands>(*this, order);
  }

 private:
  friend class EngineCommands;
  void* pipeline(const char* name) const;

  void* device_;
  void* queue_;
  void* fill_;
  void* copy_;
};

// How many references an object of Metal's has.
size_t references(void* object);

}  // namespace rota::test::metal
