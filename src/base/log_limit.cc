#include "base/log_limit.h"

namespace unisono {
namespace {

constexpr std::int64_t minute_ns = 60'000'000'000;

}  // namespace

bool LogLimit::allows(std::string_view subject, std::int64_t now_ns, std::uint64_t& left_out) {
  const std::lock_guard lock(mutex_);
  if (const auto known = subjects_.find(subject); known != subjects_.end()) {
    left_out = known->second.left_out;
    if (now_ns - known->second.written_ns < minute_ns) {
      ++known->second.left_out;
      return false;
    }
    known->second = {.written_ns = now_ns};
    return true;
  }
  left_out = 0;
  std::erase_if(subjects_, [now_ns](const auto& subject_and_state) {
    return now_ns - subject_and_state.second.written_ns >= minute_ns;
  });
  if (subjects_.size() >= most_) return false;
  subjects_.emplace(subject, Subject{.written_ns = now_ns});
  return true;
}

}  // namespace unisono
