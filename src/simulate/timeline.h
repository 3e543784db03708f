// A time-line in the trace-event JSON that Perfetto and chrome://tracing open, written while the
// simulation runs.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "simulate/time.h"

namespace unisono::simulate {

class Timeline {
 public:
  // Stops writing after `max_events`, so that no run fills a disk.
  static Result<std::unique_ptr<Timeline>> create(const std::string& path,
                                                  std::int64_t max_events = 10'000'000);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A bar on the line of a rank's thread block.
  void bar(int rank, int thread_block, std::string_view what, Time start, Time end,
           std::int64_t bytes);
  // An arrow from a bar of the sender to one of the receiver.
  void arrow(int from, int from_block, Time sent, int to, int to_block, Time arrived);

  std::int64_t events() const { return events_; }
  bool is_full() const { return events_ >= max_events_; }
  // The end of the document; the environment's error if anything could not be written.
  Status finish();

 private:
  Timeline(std::FILE* file, std::string path, std::int64_t max_events)
      : file_(file), path_(std::move(path)), max_events_(max_events) {}
  bool begin_event();

  std::FILE* file_;
  std::string path_;
  std::int64_t max_events_;
  std::int64_t events_ = 0;
  std::int64_t arrows_ = 0;
};

}  // namespace unisono::simulate
