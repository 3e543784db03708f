#include "engine/gpu/self_copies.h"

#include "base/error.h"

namespace unisono::engine::gpu {

std::size_t bytes_of(const Message& message) {
  return static_cast<std::size_t>(message.count) * size_bytes(message.type);
}

const void* data_of(const Message& message) {
  return message.is_send ? message.send_data : message.recv_data;
}

Result<std::vector<SelfCopy>> self_copies_of(std::span<const Message> messages, int rank) {
  std::vector<const Message*> sends;
  std::vector<const Message*> recvs;
  for (const Message& message : messages)
    if (message.peer == rank) (message.is_send ? sends : recvs).push_back(&message);
  if (sends.size() != recvs.size())
    return misuse("rank ", rank, " sends itself ", sends.size(), " messages but receives ",
                  recvs.size(), " from itself in one group; both numbers must be equal");
  std::vector<SelfCopy> copies;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const std::size_t bytes = bytes_of(*sends[i]);
    if (bytes != bytes_of(*recvs[i]))
      return misuse("rank ", rank, " sends itself ", bytes, " bytes but expects to receive ",
                    bytes_of(*recvs[i]));
    if (bytes > 0)
      copies.push_back({reinterpret_cast<sys::cuda::DeviceAddress>(sends[i]->send_data),
                        reinterpret_cast<sys::cuda::DeviceAddress>(recvs[i]->recv_data), bytes});
  }
  return copies;
}

}  // namespace unisono::engine::gpu
