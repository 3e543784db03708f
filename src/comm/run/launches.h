// When calls on streams were seen to begin and to be over, for the record. Kernels stamp both;
// where there is no kernel, a look tells the end of all launches up to a number. Who reads the
// record applies it, so that a call writes one entry. Replays of captured calls have no entry but
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/run/stream_calls.h"
#include "trace/record.h"

namespace unisono::comm {

class Launches {
 public:
  // Keeps what was seen for as many launches, and replays, as the record has entries.
  explicit Launches(std::size_t entries) : most_(entries), stamps_(entries) {}

  // A look at the streams found the launches up to this number over; launches count from 1.
  void saw_ended(std::uint64_t launch, std::int64_t now_ns);
  // In the order in which kernels ran; of one that had not ended, again.
  void saw(const StreamCalls::Stamped& stamped);
  // The host's clock minus that of stamps, as far as is known now.
  void set_clock_offset(std::int64_t offset_ns);
  // An entry of a call that was captured, whose replays are to have entries like it. Of the 4,096
  // that were captured last.
  void captured(const trace::Entry& entry);
  // The communicator failed: launches that were not seen to be over are in this state.
  void close(trace::State state, std::int64_t now_ns);
  // Gives entries of launched calls the state in which they were seen. Any thread.
  void apply(std::vector<trace::Entry>& entries) const;
  // Any thread.
  std::vector<trace::Entry> replays() const;
  // Whether a kernel was seen to begin, and not to end. Any thread.
  bool is_running() const;

 private:
  struct Seen {
    std::uint64_t launch;  // this one and those before it, but for those of the entry before
    std::int64_t time_ns;
    trace::State state;
  };
  struct Captured {
    std::vector<trace::Entry> entries;
    std::uint32_t replays = 0;
  };
  struct Replay {
    StreamCalls::Stamped stamped;
    std::uint32_t number = 0;  // of the captured call's, from 1
  };
  void apply(const StreamCalls::Stamped& stamped, trace::Entry& entry) const;
  void close(const Seen& told, trace::Entry& entry) const;

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::deque<Seen> seen_;
  std::vector<StreamCalls::Stamped> stamps_;  // by launch
  std::map<std::uint64_t, Captured> captured_;
  std::deque<Replay> replays_;
  bool is_running_ = false;
  std::int64_t clock_offset_ns_ = 0;
  std::optional<Seen> closed_;
};

}  // namespace unisono::comm
