// The record of a communicator's calls, and how far those on streams are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/blame/call_wait.h"
#include "comm/run/prepared_call.h"
#include "comm/run/status_page.h"
#include "comm/run/stream_calls.h"
#include "comm/run/task.h"
#include "sys/world.h"
#include "trace/record.h"

namespace unisono::comm {

class ControlGroup;

// When calls on streams were seen to be over: a look tells it for all launches up to a number, and
// who reads the record applies it, so that a call writes one entry.
class Launches {
 public:
  // Keeps what was seen for as many launches as the record has entries.
  explicit Launches(std::size_t entries) : most_(entries) {}

  // A look at the streams found the launches up to this number over; launches count from 1.
  void saw_ended(std::uint64_t launch, std::int64_t now_ns);
  // The communicator failed: launches that were not seen to be over are in this state.
  void close(trace::State state, std::int64_t now_ns);
  // Gives entries of launched calls the state in which they were seen. Any thread.
  void apply(std::vector<trace::Entry>& entries) const;

 private:
  struct Seen {
    std::uint64_t launch;  // this one and those before it, but for those of the entry before
    std::int64_t time_ns;
    trace::State state;
  };

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::deque<Seen> seen_;
  std::optional<Seen> closed_;
};

// Only the holder of the progress lock calls it, but any thread reads it.
class CallLog {
 public:
  // Calls that do not match may wait for each other until their deadline: neither sends what the
  // other waits for. So a rank that has waited this long compares its call with those that it waits
  // for.
  static constexpr std::int64_t patience_before_comparing_ns = 500'000'000;

  struct Owner {
    int rank = 0;
    std::uint64_t communicator = 0;
    std::string group;
  };
  // Keeps the last `slots` collectives and as many messages.
  CallLog(Owner owner, std::size_t slots, sys::World& world, StatusPage& status_page,
          ControlGroup& group);

  // By the numbers of collectives, and of what messages a call has to or from a peer.
  void write(const trace::Entry& entry, std::uint64_t number, std::uint32_t kind = 0) {
    (entry.is_message() ? messages_ : collectives_).write(number, entry, kind);
  }
  void write(const Task& task);
  // The task has failed.
  void close(Task& task, const Error& error);
  // The communicator has failed, and with it all that is on streams.
  void close_launches(const Error& error);
  // Adds what is known of calls that have begun. Any thread.
  void read(trace::Record& out) const;
  std::size_t memory_bytes() const {
    return collectives_.memory_bytes() + messages_.memory_bytes();
  }

  // Before the first launch.
  void watch_launches() { launched_calls_.resize(most_launched); }
  // A call is on its stream: driven until it is over there.
  void launched(const StreamCalls& on_streams, trace::Entry& entry, std::uint64_t number,
                const engine::Arguments& arguments, std::uint32_t kind = 0);
  // Notices what is over on streams.
  void look_at_launched(StreamCalls& on_streams, const std::atomic<bool>& has_failed);
  // In the first call that is open on a stream.
  CallWait launched_wait() const {
    return has_launched_ ? launched_calls_[(ended_launches_ + 1) % most_launched].wait : CallWait{};
  }
  // An error if the first call that is open on a stream has been so for long, and a rank that it
  // waits for has made another.
  std::optional<Error> launched_mismatch(const StreamCalls& on_streams, std::int64_t now);
  // An error once the first call that is open on a stream has been so for longer than its timeout.
  std::optional<Error> overdue_launch(const StreamCalls& on_streams, std::int64_t now) const;

 private:
  // The collective of that launch; none: it was messages, or another launch has taken its place.
  std::optional<CallId> launched_call(std::uint64_t launch) const;
  // Shows the neighbours which collectives the streams are at.
  void show_launched();
  // Counts this rank as one with a call under way while one is on a stream.
  void count_launched(bool is_open);

  const Owner owner_;
  sys::World& world_;
  StatusPage& status_page_;
  ControlGroup& group_;
  trace::Ring collectives_;
  trace::Ring messages_;
  Launches launches_;
  bool has_launched_ = false;  // and not seen that all are over
  std::uint64_t ended_launches_ = 0;
  std::int64_t open_since_ns_ = 0;  // the first launch after these
  // By the launch's number. Once it has been overwritten, those of later calls count, which are the
  // same as a rule.
  std::array<std::int64_t, 64> launch_timeouts_ns_{};
  // By the launch's number; empty until streams are looked after. A stream takes some thousand
  // commands, so the first launch that is open is among these.
  static constexpr std::size_t most_launched = 2048;
  struct LaunchedCall {
    std::uint64_t launch = 0;
    CallId call;
    CallWait wait;  // in it, as others are told
  };
  std::vector<LaunchedCall> launched_calls_;
  std::int64_t last_compared_ns_ = 0;  // with what kernels wait for
};

}  // namespace unisono::comm
