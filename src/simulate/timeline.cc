#include "simulate/timeline.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace unisono::simulate {
namespace {

constexpr std::size_t block_bytes = std::size_t{64} << 10;

// Trace-event times are in microseconds.
std::string in_us(Time time) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.6f", to_us(time));
  return text.data();
}

std::string quoted(std::string_view text) {
  std::string out;
  json::Writer(out).value(text);
  return out;
}

// Viewers give 0 a meaning of its own.
int process_of(int rank) { return rank + 1; }

}  // namespace

Timeline::Timeline(int descriptor, TimelineNames names, std::int64_t max_events)
    : descriptor_(descriptor), names_(std::move(names)), max_events_(max_events) {
  put("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
}

void Timeline::put(std::string_view text) {
  text_ += text;
  bytes_ += text.size();
  if (text_.size() >= block_bytes) flush();
}

// After an error only the bytes are counted, to say how many more the disk would need.
void Timeline::flush() {
  if (why_failed_ == 0) why_failed_ = write_all(descriptor_, text_);
  text_.clear();
}

void Timeline::separate() {
  put(is_first_ ? "\n" : ",\n");
  is_first_ = false;
}

bool Timeline::begin_event() {
  if (is_full()) return false;
  ++events_;
  separate();
  return true;
}

void Timeline::name(std::string_view what, int rank, int thread, std::string_view name, int place) {
  const auto event = [&](std::string_view suffix) {
    separate();
    put(str(R"({"ph":"M","pid":)", process_of(rank), R"(,"tid":)", thread, R"(,"name":")", what,
            "_", suffix, R"(","args":{)"));
  };
  event("name");
  put(str(R"("name":)", quoted(name), "}}"));
  event("sort_index");
  put(str(R"("sort_index":)", place, "}}"));
}

Timeline::Lanes& Timeline::lanes_of(int rank, int line) {
  const auto index = static_cast<std::size_t>(rank);
  if (is_named_.size() <= index) is_named_.resize(index + 1);
  if (!is_named_[index]) name("process", rank, 0, names_.rank(rank), rank);
  is_named_[index] = true;
  Lanes& lanes = lanes_[{rank, line}];
  if (lanes.empty()) add_lane(lanes, rank, line);
  return lanes;
}

Timeline::Lane& Timeline::add_lane(Lanes& lanes, int rank, int line) {
  lanes.push_back({.thread = ++threads_});
  std::string shown = names_.line(rank, line);
  if (lanes.size() > 1) shown += str(" (", lanes.size(), ")");
  name("thread", rank, threads_, shown, line);
  return lanes.back();
}

void Timeline::bar(int rank, int line, std::string_view what, Time start, Time end,
                   std::int64_t bytes) {
  if (is_full()) return;
  Lanes& lanes = lanes_of(rank, line);
  const auto free =
      std::ranges::find_if(lanes, [&](const Lane& lane) { return lane.end <= start; });
  Lane& lane = free != lanes.end() ? *free : add_lane(lanes, rank, line);
  lane.start = start;
  lane.end = end;
  if (!begin_event()) return;
  put(str(R"({"ph":"X","pid":)", process_of(rank), R"(,"tid":)", lane.thread, R"(,"name":)",
          quoted(what), R"(,"ts":)", in_us(start), R"(,"dur":)", in_us(end - start),
          R"(,"args":{"bytes":)", bytes, "}}"));
}

void Timeline::arrow(int from, int from_line, Time sent, int to, int to_line, Time arrived) {
  const std::int64_t id = arrows_++;
  const auto end = [&](char phase, int rank, int line, Time time) {
    if (is_full()) return;
    const Lanes& lanes = lanes_of(rank, line);
    const auto found = std::ranges::find_if(
        lanes, [&](const Lane& lane) { return lane.start <= time && time <= lane.end; });
    const Lane& lane = found != lanes.end() ? *found : lanes.front();
    if (!begin_event()) return;
    put(str(R"({"ph":")", phase, R"(","bp":"e","cat":"message","name":"message","id":)", id,
            R"(,"pid":)", process_of(rank), R"(,"tid":)", lane.thread, R"(,"ts":)", in_us(time),
            "}"));
  };
  end('s', from, from_line, sent);
  end('f', to, to_line, arrived);
}

Status Timeline::finish() {
  put("\n]}\n");
  flush();
  if (why_failed_ == 0) return {};
  return write_error("cannot write the time-line", descriptor_, bytes_, why_failed_);
}

}  // namespace unisono::simulate
