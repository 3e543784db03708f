#include "simulate/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>

#include "base/error.h"
#include "base/json.h"

namespace unisono::simulate {
namespace {

// Trace-event times are in microseconds.
double in_us(Time time) { return to_us(time); }

std::string quoted(std::string_view text) {
  std::string out;
  json::Writer(out).value(text);
  return out;
}

// Viewers give 0 a meaning of its own.
int process_of(int rank) { return rank + 1; }

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::create(const std::string& path, TimelineNames names,
                                                   std::int64_t max_events) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return system_error("open " + path, errno);
  std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
  return std::unique_ptr<Timeline>(new Timeline(file, path, std::move(names), max_events));
}

Timeline::~Timeline() {
  if (file_ != nullptr) std::fclose(file_);
}

void Timeline::separate() {
  std::fputs(is_first_ ? "\n" : ",\n", file_);
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
    std::fprintf(file_, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%.*s_%.*s\",\"args\":{",
                 process_of(rank), thread, static_cast<int>(what.size()), what.data(),
                 static_cast<int>(suffix.size()), suffix.data());
  };
  event("name");
  std::fprintf(file_, "\"name\":%s}}", quoted(name).c_str());
  event("sort_index");
  std::fprintf(file_, "\"sort_index\":%d}}", place);
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
  std::fprintf(file_,
               "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":%s,\"ts\":%.6f,\"dur\":%.6f,"
               "\"args\":{\"bytes\":%" PRId64 "}}",
               process_of(rank), lane.thread, quoted(what).c_str(), in_us(start),
               in_us(end - start), bytes);
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
    std::fprintf(file_,
                 "{\"ph\":\"%c\",\"bp\":\"e\",\"cat\":\"message\",\"name\":\"message\",\"id\":"
                 "%" PRId64 ",\"pid\":%d,\"tid\":%d,\"ts\":%.6f}",
                 phase, id, process_of(rank), lane.thread, in_us(time));
  };
  end('s', from, from_line, sent);
  end('f', to, to_line, arrived);
}

Status Timeline::finish() {
  std::fputs("\n]}\n", file_);
  const bool failed = std::ferror(file_) != 0;
  const bool unclosed = std::fclose(file_) != 0;
  file_ = nullptr;
  if (failed || unclosed) return environment_error("cannot write the time-line ", path_);
  return {};
}

}  // namespace unisono::simulate
