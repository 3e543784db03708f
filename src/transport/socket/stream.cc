#include "transport/socket/stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace unisono::transport::socket {
namespace {

// A stream that takes everything at once must not keep its thread for ever: so much for one call.
constexpr std::size_t max_bytes_per_send = std::size_t{8} << 20;

iovec part_of(const std::byte* data, std::size_t bytes) {
  return {.iov_base = const_cast<std::byte*>(data), .iov_len = bytes};
}

}  // namespace

Stream::Stream(sys::Socket socket, Poller& poller) : socket_(std::move(socket)), poller_(&poller) {}

Stream::~Stream() { unwatch(); }

Status Stream::seal(const JoinedStream& how) {
  using sys::Seal;
  if (how.protection == sys::Protection::none) return {};
  UNISONO_ASSIGN(auto sealing, Seal::make(how.send_key, how.protection, Seal::Role::sender));
  sealer_ = std::make_unique<Sealer>(std::move(sealing), how.protection);
  UNISONO_ASSIGN(opener_, Seal::make(how.receive_key, how.protection, Seal::Role::receiver));
  return {};
}

Status Stream::watch() { return poller_->add(socket_, readiness_); }

void Stream::unwatch() {
  if (poller_ != nullptr) std::exchange(poller_, nullptr)->remove(socket_, readiness_);
}

void Stream::push(const Frame& frame, const std::byte* payload, std::uint64_t token) {
  waiting_.push({.head = encode(frame),
                 .payload = payload,
                 .payload_bytes = static_cast<std::size_t>(frame.bytes),
                 .token = token});
  unsent_bytes_ += waiting_[waiting_.end() - 1].bytes();
}

std::size_t Stream::gather(std::array<iovec, max_parts>& parts) {
  if (!sealer_) return gather_plain(parts);
  std::size_t count = 0;
  if (auto sealed = sealer_->gather(waiting_, parts, count); !sealed.ok()) {
    log(LogLevel::error, sealed.error().message);
    broken_ = true;
  }
  return count;
}

std::size_t Stream::gather_plain(std::array<iovec, max_parts>& parts) {
  std::size_t count = 0;
  std::size_t skip = sent_of_front_;
  for (std::uint64_t number = waiting_.begin(); number != waiting_.end() && count + 2 <= max_parts;
       ++number) {
    const WaitingFrame& frame = waiting_[number];
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

void Stream::frame_has_left(SentFrames& listener) {
  listener.frame_sent(waiting_[waiting_.begin()].token);
  waiting_.pop();
  if (waiting_.empty()) unsent_bytes_ = 0;
}

void Stream::advance(std::size_t bytes, SentFrames& listener) {
  // Tags of seals are no frames' bytes; what they make too little is put right when all has left.
  unsent_bytes_ -= std::min(unsent_bytes_, bytes);
  if (sealer_) {
    for (int gone = sealer_->advance(bytes); gone > 0; --gone) frame_has_left(listener);
    return;
  }
  sent_of_front_ += bytes;
  while (!waiting_.empty() && sent_of_front_ >= waiting_[waiting_.begin()].bytes()) {
    sent_of_front_ -= waiting_[waiting_.begin()].bytes();
    frame_has_left(listener);
  }
}

void Stream::send(SentFrames& listener) {
  std::size_t total = 0;
  while (!nothing_waits() && !broken_ && !is_unreadable_ && total < max_bytes_per_send) {
    if (poller_ != nullptr && !readiness_.writable.exchange(false, std::memory_order_relaxed))
      return;
    std::array<iovec, max_parts> parts;
    const std::size_t count = gather(parts);
    if (broken_) break;
    const sys::Transferred sent = sys::send_some(socket_, {parts.data(), count});
    is_unreadable_ = sent.error == EFAULT;
    if (sent.error != 0 && !is_unreadable_) broken_ = true;
    if (sent.would_block || broken_) break;
    readiness_.writable.store(true, std::memory_order_relaxed);
    total += sent.bytes;
    advance(sent.bytes, listener);
  }
  if (broken_) drop_waiting(listener);
}

void Stream::drop_waiting(SentFrames& listener) {
  if (sealer_) sealer_->forget();
  while (!waiting_.empty()) frame_has_left(listener);
  sent_of_front_ = 0;
}

void Stream::close(SentFrames& listener) {
  unwatch();
  socket_.close();
  broken_ = true;
  is_unreadable_ = false;
  drop_waiting(listener);
}

void Stream::drop_payloads() {
  is_unreadable_ = false;
  const std::uint64_t first_not_begun =
      sealer_ ? sealer_->drop_payloads(waiting_) : waiting_.begin() + (sent_of_front_ > 0 ? 1 : 0);
  std::uint64_t kept = waiting_.begin();
  for (std::uint64_t number = waiting_.begin(); number != waiting_.end(); ++number) {
    WaitingFrame& frame = waiting_[number];
    const bool is_of_payload =
        frame.payload_bytes > 0 || decode(frame.head).type == Frame::Type::whole;
    if (is_of_payload && number >= first_not_begun) {
      unsent_bytes_ -= std::min(unsent_bytes_, frame.bytes());
      continue;
    }
    frame.payload = nullptr;
    if (kept != number) waiting_[kept] = frame;
    ++kept;
  }
  waiting_.truncate(kept);
  if (waiting_.empty()) unsent_bytes_ = 0;
}

}  // namespace unisono::transport::socket
