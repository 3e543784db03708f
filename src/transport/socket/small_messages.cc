#include "transport/socket/small_messages.h"

#include <sys/uio.h>

#include "base/error.h"

namespace unisono::transport::socket {

Status SmallMessages::send(std::span<const std::byte> message) {
  const iovec part{.iov_base = const_cast<std::byte*>(message.data()), .iov_len = message.size()};
  const sys::Transferred sent = sys::send_some(socket_, {&part, 1});
  is_lost_ = sent.error != 0;
  if (sent.error != 0) return system_error("sending", sent.error);
  if (sent.bytes == message.size()) return {};
  return environment_error("only ", sent.bytes, " of ", message.size(), " bytes could be sent");
}

Result<std::span<const std::byte>> SmallMessages::receive(std::size_t bytes) {
  if (have_ < bytes) {
    const iovec part{.iov_base = buffer_.data() + have_, .iov_len = bytes - have_};
    const sys::Transferred got = sys::receive_some(socket_, {&part, 1});
    is_lost_ = got.error != 0 || got.ended;
    if (got.error != 0) return system_error("receiving", got.error);
    if (got.ended) return environment_error("the peer closed the connection");
    have_ += got.bytes;
  }
  if (have_ < bytes) return std::span<const std::byte>();
  have_ = 0;
  return std::span<const std::byte>(buffer_.data(), bytes);
}

bool SmallMessages::has_gone() {
  std::byte unasked;
  const iovec part{.iov_base = &unasked, .iov_len = 1};
  return !sys::receive_some(socket_, {&part, 1}).would_block;
}

}  // namespace unisono::transport::socket
