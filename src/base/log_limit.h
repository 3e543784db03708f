// Keeps what strangers can cause from filling the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace unisono {

// Allows one line for each subject and minute, and of all subjects together at most `most`. Any
// thread.
class LogLimit {
 public:
  explicit LogLimit(std::size_t most = 64) : most_(most) {}

  // `now_ns` by any clock that does not go back. If true, `left_out` is how many lines about this
  // subject were not written since the last one that was.
  bool allows(std::string_view subject, std::int64_t now_ns, std::uint64_t& left_out);

 private:
  struct Subject {
    std::int64_t written_ns = 0;
    std::uint64_t left_out = 0;
  };
  const std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, Subject, std::less<>> subjects_;  // of the last minute
};

}  // namespace unisono
