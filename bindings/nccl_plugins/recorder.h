// The records of all communicators of NCCL in this process, and when they are written.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "call_log.h"

namespace unisono::profiler {

// What NCCL holds of an event: never an address, so that one of a communicator that is gone, or of
// another process, finds nothing.
struct Handle {
  enum class Kind : std::uint8_t { communicator, call, kernel_channel, proxy_op };
  std::uint64_t slot = 0;
  std::uint64_t generation = 1;
  Kind kind = Kind::communicator;
  std::uint64_t number = 0;  // of the call

  void* pack() const;
  static Handle unpack(const void* packed);
};

class Recorder {
 public:
  static constexpr std::size_t most_communicators = 1'024;

  // Lives as long as the process: NCCL's threads may report events while static objects are
  // destroyed.
  static Recorder& instance();

  // Nothing without UNISONO_DUMP_DIRECTORY, or when there are too many communicators.
  std::optional<Handle> add(std::unique_ptr<CallLog> log);
  // Null for a communicator that is gone.
  std::shared_ptr<CallLog> find(const Handle& handle);
  // Writes the record. After the last communicator's nothing of this library runs: NCCL unloads it.
  void remove(const Handle& handle);

 private:
  struct Slot {
    std::shared_ptr<CallLog> log;
    std::uint64_t generation = 0;
    std::int64_t written_ns = 0;  // the last event of what a quiet time wrote
    bool has_file = false;
  };
  Recorder() = default;
  void start();
  void run(std::uint64_t thread);
  void write_quiet(std::int64_t now_ns);
  void write(Slot& slot, std::string_view cause);
  bool has_room();
  void complain(std::string_view what);

  std::mutex mutex_;
  std::condition_variable stop_;
  std::array<Slot, most_communicators> slots_;
  std::thread thread_;
  std::uint64_t current_thread_ = 0;  // one of another number stops
  std::size_t communicators_ = 0;
  int files_ = 0;
  std::deque<std::string> finalized_;  // files of communicators that are gone, oldest first
  bool has_complained_ = false;
};

}  // namespace unisono::profiler
