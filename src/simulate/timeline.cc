#include "simulate/timeline.h"

#include <cerrno>
#include <cinttypes>

#include "base/error.h"

namespace unisono::simulate {
namespace {

// Trace-event times are in microseconds.
double in_us(Time time) { return to_us(time); }

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::create(const std::string& path,
                                                   std::int64_t max_events) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return system_error("open " + path, errno);
  std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
  return std::unique_ptr<Timeline>(new Timeline(file, path, max_events));
}

Timeline::~Timeline() {
  if (file_ != nullptr) std::fclose(file_);
}

bool Timeline::begin_event() {
  if (is_full()) return false;
  if (events_++ > 0) std::fputc(',', file_);
  std::fputc('\n', file_);
  return true;
}

void Timeline::bar(int rank, int thread_block, std::string_view what, Time start, Time end,
                   std::int64_t bytes) {
  if (!begin_event()) return;
  std::fprintf(file_,
               "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%.*s\",\"ts\":%.6f,\"dur\":%.6f,"
               "\"args\":{\"bytes\":%" PRId64 "}}",
               rank, thread_block, static_cast<int>(what.size()), what.data(), in_us(start),
               in_us(end - start), bytes);
}

void Timeline::arrow(int from, int from_block, Time sent, int to, int to_block, Time arrived) {
  const std::int64_t id = arrows_++;
  const auto end = [&](char phase, int rank, int block, Time time) {
    if (!begin_event()) return;
    std::fprintf(file_,
                 "{\"ph\":\"%c\",\"bp\":\"e\",\"cat\":\"message\",\"name\":\"message\",\"id\":"
                 "%" PRId64 ",\"pid\":%d,\"tid\":%d,\"ts\":%.6f}",
                 phase, id, rank, block, in_us(time));
  };
  end('s', from, from_block, sent);
  end('f', to, to_block, arrived);
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
