// A time-line in the trace-event JSON that Perfetto and chrome://tracing open, written while the
// simulation runs.
//
// A rank is a process, a line of it a thread; both have names. Bars of one line that overlap in
// time stand on lanes of their own, as slices of one thread must not.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulate/time.h"

namespace unisono::simulate {

// Called when a rank or a line is first shown.
struct TimelineNames {
  std::function<std::string(int rank)> rank;
  std::function<std::string(int rank, int line)> line;
};

class Timeline {
 public:
  // Stops writing after `max_events`, so that no run fills a disk.
  // To a descriptor that outlives it.
  Timeline(int descriptor, TimelineNames names, std::int64_t max_events = 10'000'000);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A bar on a line of a rank, for all of its time.
  void bar(int rank, int line, std::string_view what, Time start, Time end, std::int64_t bytes);
  // An arrow from a bar of the sender to one of the receiver.
  void arrow(int from, int from_line, Time sent, int to, int to_line, Time arrived);

  std::int64_t events() const { return events_; }
  bool is_full() const { return events_ >= max_events_; }
  // The end of the document; the environment's error if anything could not be written.
  Status finish();

 private:
  struct Lane {
    int thread = 0;
    Time start = 0, end = 0;  // of its last bar
  };
  using Lanes = std::vector<Lane>;

  Lanes& lanes_of(int rank, int line);
  Lane& add_lane(Lanes& lanes, int rank, int line);
  void name(std::string_view what, int rank, int thread, std::string_view name, int place);
  bool begin_event();
  void separate();
  void put(std::string_view text);
  void flush();

  int descriptor_;
  std::string text_;       // that is yet to be written
  std::size_t bytes_ = 0;  // of the document so far
  int why_failed_ = 0;     // the first error's number
  TimelineNames names_;
  std::int64_t max_events_;
  std::int64_t events_ = 0;
  std::int64_t arrows_ = 0;
  bool is_first_ = true;
  int threads_ = 0;
  std::vector<bool> is_named_;  // by rank
  std::map<std::pair<int, int>, Lanes> lanes_;
};

}  // namespace unisono::simulate
