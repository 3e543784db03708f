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
  waiting_.push({.head = encode(frame),
                 .payload = payload,
                 .payload_bytes = static_cast<std::size_t>(frame.bytes),
                 .token = token});
}

std::size_t Stream::gather(std::array<iovec, max_parts>& parts) {
  std::size_t count = 0;
  std::size_t skip = sent_of_front_;
  for (std::uint64_t number = waiting_.begin(); number != waiting_.end() && count + 2 <= max_parts;
       ++number) {
    const Waiting& frame = waiting_[number];
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
  while (!waiting_.empty() && sent_of_front_ >= waiting_[waiting_.begin()].bytes()) {
    sent_of_front_ -= waiting_[waiting_.begin()].bytes();
    listener.frame_sent(waiting_[waiting_.begin()].token);
    waiting_.pop();
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
  for (; !waiting_.empty(); waiting_.pop()) listener.frame_sent(waiting_[waiting_.begin()].token);
  sent_of_front_ = 0;
}

void Stream::drop_payloads() {
  std::uint64_t kept = waiting_.begin();
  for (std::uint64_t number = waiting_.begin(); number != waiting_.end(); ++number) {
    Waiting& frame = waiting_[number];
    const bool begun = number == waiting_.begin() && sent_of_front_ > 0;
    if (frame.payload_bytes > 0 && !begun) continue;
    frame.payload = nullptr;
    if (kept != number) waiting_[kept] = frame;
    ++kept;
  }
  waiting_.truncate(kept);
}

}  // namespace unisono::transport::socket
