// When calls on streams were seen to be over, for the record: a look tells it for all launches up
// to a number, and who reads the record applies it, so that a call writes one entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "trace/record.h"

namespace unisono::comm {

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

}  // namespace unisono::comm
