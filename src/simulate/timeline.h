// A time-line in the trace-event JSON that Perfetto and chrome://tracing open, written while the
// simulation runs.
//
// A rank is a process, a line of it a thread; both have names. Bars of one line that overlap in
// time stand on lanes of their own, as slices of one thread must not.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
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
  static Result<std::unique_ptr<Timeline>> create(const std::string& path, TimelineNames names,
                                                  std::int64_t max_events = 10'000'000);
  ~Timeline();
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

  Timeline(std::FILE* file, std::string path, TimelineNames names, std::int64_t max_events)
      : file_(file), path_(std::move(path)), names_(std::move(names)), max_events_(max_events) {}
  Lanes& lanes_of(int rank, int line);
  Lane& add_lane(Lanes& lanes, int rank, int line);
  void name(std::string_view what, int rank, int thread, std::string_view name, int place);
  bool begin_event();
  void separate();

  std::FILE* file_;
  std::string path_;
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
