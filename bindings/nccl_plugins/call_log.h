// The calls of one communicator of NCCL, from the events that NCCL reports of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trace/record.h"

namespace unisono::profiler {

// What NCCL says of a call when it starts one, in the words of its versions since 2.
struct Call {
  std::string_view function;  // "AllReduce", "Send"
  std::string_view type;      // "ncclFloat32"
  std::string_view algorithm;
  std::string_view protocol;
  std::uint64_t count = 0;
  int root = 0;
  int peer = -1;
  // How many kernel channels will report; 0 where the version does not say.
  int channels = 0;
  std::uint64_t tag = 0;
};

enum class Child : std::uint8_t { kernel_channel, proxy_op };

// Safe to use from any thread: NCCL reports enqueueing from the caller's thread, and kernels and
// the network from its own.
//
// A call has ended when it is enqueued, all its kernel channels and proxy operations that began
// have stopped, and, where NCCL said how many channels there are, that many have stopped. Its time
// is that of the last one to stop. Where NCCL reports neither for a call, its end is not seen.
class CallLog {
 public:
  // As many calls are kept; an event of an older one is ignored.
  static constexpr std::size_t most_calls = 16'384;

  explicit CallLog(int ranks) : ranks_(ranks) {}

  // The call's number, or nothing for messages to this rank itself or without data.
  std::optional<std::uint64_t> begin(const Call& call, int rank);
  void set_enqueued(std::uint64_t number);
  void begin_child(std::uint64_t number, Child child);
  void end_child(std::uint64_t number, Child child);

  // Versions 1 to 3 name the communicator with each call.
  void set_identity(std::uint64_t communicator, std::string_view name, int rank);
  trace::Owner owner() const;
  trace::Record record() const;
  // When the last event came, of the monotonic clock; 0 before the first.
  std::int64_t last_event_ns() const;

 private:
  struct Kept {
    trace::Entry entry;
    std::int64_t last_stop_ns = 0;
    int channels = 0;
    int channels_stopped = 0;
    int open_children = 0;
    int children = 0;
    bool is_enqueued = false;
  };
  Kept* find(std::uint64_t number);
  static void settle(Kept& kept);
  std::int64_t now();

  const int ranks_;
  mutable std::mutex mutex_;
  std::uint64_t communicator_ = 0;
  std::string name_ = "nccl";
  int rank_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t collectives_ = 0;
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  // by peer and whether it is a send
  std::vector<Kept> kept_;
  std::int64_t last_event_ns_ = 0;
};

}  // namespace unisono::profiler
