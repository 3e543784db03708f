// How many bytes one end writes in place at a time, into exposed memory and to destinations of
// gets. Whoever withdraws memory waits for those into it, and an answer to the peer's offer leaves
// behind them. So they are bounded by the time that the wire takes for them, but one write may
// always be under way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace unisono::transport::ofi {

class InPlaceWindow {
 public:
  static constexpr std::int64_t drain_ns = 200'000;
  // What 50 GB/s take that time for, nearly.
  static constexpr std::size_t most_bytes = std::size_t{8} << 20;

  bool has_room(std::size_t bytes) const {
    return under_way_ == 0 || under_way_ + bytes <= allowed_;
  }
  bool is_under_way() const { return under_way_ > 0; }
  void posted(std::size_t bytes, std::int64_t now_ns) {
    if (under_way_ == 0) since_ns_ = now_ns;
    under_way_ += bytes;
  }
  // Its source is free again.
  void completed(std::size_t bytes, std::int64_t now_ns) {
    under_way_ -= bytes;
    drained_ += bytes;
    busy_ns_ += now_ns - since_ns_;
    since_ns_ = now_ns;
    // Several completions may be read at once, so the rate is that of a longer time.
    if (busy_ns_ < drain_ns) return;
    const double drained = static_cast<double>(drained_) * drain_ns / static_cast<double>(busy_ns_);
    allowed_ = static_cast<std::size_t>(std::min(drained, static_cast<double>(most_bytes)));
    drained_ = 0;
    busy_ns_ = 0;
  }
  // Nothing of them is under way any more.
  void clear() { under_way_ = 0; }

 private:
  std::size_t under_way_ = 0;
  std::size_t allowed_ = 0;
  // Since the rate was taken last: bytes, and for how long some were under way.
  std::size_t drained_ = 0;
  std::int64_t busy_ns_ = 0;
  std::int64_t since_ns_ = 0;
};

}  // namespace unisono::transport::ofi
