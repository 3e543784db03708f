#include "comm/control/channel.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"

namespace unisono::comm {
namespace {

constexpr std::size_t read_step_bytes = std::size_t{1} << 20;
constexpr std::size_t tag_bytes = sys::Seal::tag_bytes;

}  // namespace

// A host drops what comes from outside under one of its own addresses.
sys::Protection WireProtection::on(const sys::Address& local, const sys::Address& peer) const {
  const bool is_inside = (local.is_loopback() && peer.is_loopback()) || local.host == peer.host;
  return is_inside && !inside_host ? sys::Protection::none : between_hosts;
}

Result<std::unique_ptr<Channel>> Channel::make(std::unique_ptr<sys::Stream> stream,
                                               const Session& session) {
  std::unique_ptr<Channel> out(new Channel(std::move(stream), session.wrap));
  if (session.protection == sys::Protection::none) return out;
  using Role = sys::Seal::Role;
  UNISONO_ASSIGN(out->send_, sys::Seal::make(session.send, session.protection, Role::sender));
  UNISONO_ASSIGN(out->receive_,
                 sys::Seal::make(session.receive, session.protection, Role::receiver));
  return out;
}

Key Channel::wrap(const Key& key) const {
  Key out = key;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] ^= wrap_[i];
  return out;
}

sys::Task<Status> Channel::read_sealed(std::vector<std::byte>& out, std::size_t bytes,
                                       std::int64_t deadline_ns) {
  const std::size_t total = bytes + (receive_ ? tag_bytes : 0);
  while (out.size() < total) {
    const std::size_t filled = out.size();
    out.resize(std::min(total, filled + read_step_bytes));
    const auto rest = std::span(out).subspan(filled);
    Status received = co_await sys::read_exactly(*stream_, rest, deadline_ns);
    if (!received.ok()) co_return std::move(received);
  }
  if (!receive_) co_return Status();
  receive_->begin({});
  receive_->add(out.data(), bytes, out.data());
  std::array<std::byte, tag_bytes> tag;
  std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(bytes), tag_bytes, tag.begin());
  Status right = receive_->check(tag);
  out.resize(bytes);
  co_return std::move(right);
}

sys::Task<Result<Frame>> Channel::read(std::size_t max_message_bytes, std::int64_t deadline_ns) {
  std::vector<std::byte> bytes;
  Status received = co_await read_sealed(bytes, frame_header_bytes, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  Result<FrameHeader> header = decode_frame_header(bytes, max_message_bytes);
  if (!header.ok()) co_return header.take_error();
  Frame frame;
  frame.header = *header;
  if (header->payload_bytes > 0) {
    received = co_await read_sealed(frame.payload, header->payload_bytes, deadline_ns);
    if (!received.ok()) co_return received.take_error();
  }
  co_return std::move(frame);
}

Result<std::vector<std::byte>> Channel::seal(FrameKind kind, const MessageKey& key,
                                             std::span<const std::byte> payload) {
  std::vector<std::byte> bytes = encode_frame(kind, key, payload);
  if (!send_) return bytes;
  std::vector<std::byte> out;
  out.reserve(bytes.size() + 2 * tag_bytes);
  const auto add = [&](std::span<std::byte> part) -> Status {
    send_->begin({});
    send_->add(part.data(), part.size(), part.data());
    UNISONO_ASSIGN(const sys::Seal::Tag tag, send_->tag());
    out.insert(out.end(), part.begin(), part.end());
    out.insert(out.end(), tag.begin(), tag.end());
    return {};
  };
  UNISONO_TRY(add(std::span(bytes).first(frame_header_bytes)));
  if (!payload.empty()) UNISONO_TRY(add(std::span(bytes).subspan(frame_header_bytes)));
  return out;
}

sys::Task<Status> Channel::write(FrameKind kind, const MessageKey& key,
                                 std::span<const std::byte> payload, std::int64_t deadline_ns) {
  Result<std::vector<std::byte>> bytes = seal(kind, key, payload);
  if (!bytes.ok()) co_return bytes.take_error();
  Status sent = co_await sys::write_all(*stream_, *bytes, deadline_ns);
  co_return std::move(sent);
}

void Channel::say_bye() {
  if (const auto bytes = seal(FrameKind::bye, {}, {}); bytes.ok())
    stream_->write_now(bytes.value());
}

sys::Task<void> Channel::wait_for_end(std::int64_t deadline_ns) {
  std::array<std::byte, 256> unread;
  for (;;) {
    Result<std::size_t> got = co_await stream_->read_some(unread, deadline_ns);
    if (!got.ok() || *got == 0) co_return;
  }
}

}  // namespace unisono::comm
