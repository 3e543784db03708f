#include "transport/socket/stream.h"

#include <sys/uio.h>

#include <algorithm>

namespace unisono::transport::socket {
namespace {

// What is sent in place of bytes that are gone.
constexpr std::size_t zeros_bytes = std::size_t{64} << 10;
constexpr std::array<std::byte, zeros_bytes> zeros{};

// A stream that takes everything at once must not keep its thread for ever: so much for one call.
constexpr std::size_t max_bytes_per_send = std::size_t{8} << 20;

iovec part_of(const std::byte* data, std::size_t bytes) {
  return {.iov_base = const_cast<std::byte*>(data), .iov_len = bytes};
}

}  // namespace

Stream::Stream(sys::Socket socket, Poller& poller) : socket_(std::move(socket)), poller_(poller) {}

Stream::~Stream() { poller_.remove(socket_); }

Status Stream::watch() { return poller_.add(socket_, readiness_); }

void Stream::push(const Frame& frame, const std::byte* payload, std::uint64_t token) {
  waiting(pushed_++) = {.head = encode(frame),
                        .payload = payload,
                        .payload_bytes = static_cast<std::size_t>(frame.bytes),
                        .token = token};
}

std::size_t Stream::gather(std::array<iovec, max_parts>& parts) {
  std::size_t count = 0;
  std::size_t skip = sent_of_front_;
  for (std::uint64_t number = sent_; number < pushed_ && count + 2 <= max_parts; ++number) {
    const Waiting& frame = waiting(number);
    if (skip < frame_bytes) parts[count++] = part_of(frame.head.data() + skip, frame_bytes - skip);
    const std::size_t payload_done = skip > frame_bytes ? skip - frame_bytes : 0;
    const std::size_t payload_left = frame.payload_bytes - payload_done;
    skip = 0;
    if (payload_left == 0) continue;
    if (frame.payload != nullptr) {
      parts[count++] = part_of(frame.payload + payload_done, payload_left);
      continue;
    }
    parts[count++] = part_of(zeros.data(), std::min(payload_left, zeros_bytes));
    if (payload_left > zeros_bytes) break;
  }
  return count;
}

void Stream::advance(std::size_t bytes, SentFrames& listener) {
  sent_of_front_ += bytes;
  while (sent_ < pushed_ && sent_of_front_ >= waiting(sent_).bytes()) {
    sent_of_front_ -= waiting(sent_).bytes();
    listener.frame_sent(waiting(sent_).token);
    ++sent_;
  }
}

void Stream::send(SentFrames& listener) {
  std::size_t total = 0;
  while (!nothing_waits() && !broken_ && total < max_bytes_per_send) {
    if (!readiness_.writable.exchange(false, std::memory_order_relaxed)) return;
    std::array<iovec, max_parts> parts;
    const std::size_t count = gather(parts);
    const sys::Transferred sent = sys::send_some(socket_, {parts.data(), count});
    if (sent.error != 0) broken_ = true;
    if (sent.would_block || broken_) break;
    readiness_.writable.store(true, std::memory_order_relaxed);
    total += sent.bytes;
    advance(sent.bytes, listener);
  }
  if (!broken_) return;
  for (; sent_ < pushed_; ++sent_) listener.frame_sent(waiting(sent_).token);
  sent_of_front_ = 0;
}

void Stream::drop_payloads() {
  std::uint64_t kept = sent_;
  for (std::uint64_t number = sent_; number < pushed_; ++number) {
    Waiting& frame = waiting(number);
    const bool begun = number == sent_ && sent_of_front_ > 0;
    if (frame.payload_bytes > 0 && !begun) continue;
    frame.payload = nullptr;
    if (kept != number) waiting(kept) = frame;
    ++kept;
  }
  pushed_ = kept;
}

}  // namespace unisono::transport::socket
