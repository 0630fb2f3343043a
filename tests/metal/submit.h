// What encoders record and queues run, without Objective-C.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "compile.h"
#include "machine.h"
#include "order.h"

namespace rota::test::metal {

struct Fence {
  Clock clock;  // what the encoder that updated it last had before it
};

// What an event is made of.
class Timeline {
 public:
  uint64_t value() const;
  void signal(uint64_t value, const Clock& clock);  // the clock has what is over by then
  Clock wait(uint64_t value);                       // of what was signaled

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t value_ = 0;
  Clock clock_;
};

struct RecordedBuffer {
  unsigned index = 0;
  char* memory = nullptr;  // of the buffer; null: `bytes` are the constants
  size_t length = 0;
  size_t offset = 0;
  std::shared_ptr<std::vector<char>> bytes;
  bool tracked = false;  // Metal orders its uses in different encoders
};

struct RecordedDispatch {
  std::shared_ptr<const Binary> binary;
  std::string kernel;
  unsigned groups[3] = {};
  unsigned threads[3] = {};
  std::vector<RecordedBuffer> buffers;
  std::string error;  // not empty: it cannot run
};
struct RecordedBarrier {};
struct RecordedWait {
  std::shared_ptr<Fence> fence;
};
struct RecordedUpdate {
  std::shared_ptr<Fence> fence;
};
// Of an event, in a place of its own between encoders.
struct RecordedSignal {
  std::shared_ptr<Timeline> timeline;
  uint64_t value;
};
using Command = std::variant<RecordedDispatch, RecordedBarrier, RecordedWait, RecordedUpdate, RecordedSignal>;

struct RecordedEncoder {
  uint64_t number = 0;  // no other encoder has it
  bool serial = false;
  std::vector<Command> commands;
};
uint64_t next_encoder();

// What a command buffer has before it is committed.
struct RecordedCommands {
  std::vector<RecordedSignal> waits;  // before all encoders
  std::vector<std::unique_ptr<RecordedEncoder>> encoders;
};

// A committed command buffer.
class Submission {
 public:
  explicit Submission(const RecordedCommands& commands);

  // Returns what went wrong, or nothing. From its return on, what is committed comes after it.
  std::string run();

 private:
  std::string run_locked();
  void run_encoder(const RecordedEncoder& encoder, std::string& error);

  const RecordedCommands& commands_;
  Clock waited_;        // what comes before all of it
  Clock over_;          // what its encoders so far have before them, and they themselves
  uint32_t completed_;  // intervals up to this one were over when it was committed
};

// Buffers that exist, so that a command buffer is caught that uses one after its end.
void add_buffer(const void* memory);
void remove_buffer(const void* memory);

// Runs jobs one after the other on a thread of its own, and limits how many exist.
class Worker {
 public:
  explicit Worker(size_t most);

  void acquire();  // blocks while `most` are acquired
  void release();
  void add(std::function<void()> job);

  // Runs what is left, then ends the thread.
  static void stop(std::shared_ptr<Worker> worker);
  static std::shared_ptr<Worker> start(size_t most);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  size_t most_;
  size_t acquired_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rota::test::metal
