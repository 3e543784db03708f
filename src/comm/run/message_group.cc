#include "comm/run/message_group.h"

#include <algorithm>

#include "base/error.h"
#include "comm/run/calls.h"
#include "comm/run/point_to_point.h"

namespace unisono::comm {
namespace {

// Adds a message; returns how many pieces it has.
std::int64_t add_pieces(MessageGroup::Blocks& to, const void* data, std::uint64_t bytes,
                        std::uint64_t piece_bytes, std::uint64_t call) {
  if (to.base == nullptr) to.base = static_cast<const std::byte*>(data);
  const auto begin =
      reinterpret_cast<std::intptr_t>(data) - reinterpret_cast<std::intptr_t>(to.base);
  std::int64_t pieces = 0;
  for (std::uint64_t done = 0; done < bytes; done += piece_bytes, ++pieces) {
    to.counts.push_back(static_cast<std::int64_t>(std::min(piece_bytes, bytes - done)));
    to.displacements.push_back(begin + static_cast<std::int64_t>(done));
    to.calls.push_back(call);
  }
  return pieces;
}

}  // namespace

void MessageGroup::add(const Message& message) {
  Blocks& blocks = message.is_send ? sends_ : recvs_;
  const auto first = static_cast<std::int64_t>(blocks.counts.size());
  const void* data = message.is_send ? message.send_data : message.recv_data;
  const std::uint64_t call = owner_.call_of(message);
  const std::int64_t pieces =
      add_pieces(blocks, data, bytes_of(message), owner_.piece_bytes(bytes_of(message)), call);
  if (message.peer == rank_) {
    (message.is_send ? to_self_ : from_self_).push_back({first, bytes_of(message), call});
    return;
  }
  if (pieces == 0) return;
  Flow& flow = flow_of(message.peer, message.is_send, channel(message.tag));
  flow.messages += 1;
  flow.bytes += bytes_of(message);
  plan::BlockBuilder& block = flow.block;
  block.loop(pieces);
  if (message.is_send)
    block.send(plan::input(plan::affine(first, 1)));
  else
    block.recv(plan::output(plan::affine(first, 1)));
  block.end_loop();
}

Status MessageGroup::add_self_copies() {
  if (to_self_.size() != from_self_.size())
    return misuse("rank ", rank_, " sends itself ", to_self_.size(), " messages but receives ",
                  from_self_.size(), " from itself in one group; both numbers must be equal");
  if (to_self_.empty()) return {};
  plan::BlockBuilder block = program_.block(0, -1, -1);
  for (std::size_t i = 0; i < to_self_.size(); ++i) {
    if (to_self_[i].bytes != from_self_[i].bytes)
      return misuse("rank ", rank_, " sends itself ", to_self_[i].bytes,
                    " bytes but expects to receive ", from_self_[i].bytes);
    if (to_self_[i].call != from_self_[i].call)
      return misuse("rank ", rank_, " sends itself ", describe_call(to_self_[i].call),
                    " but expects to receive ", describe_call(from_self_[i].call));
    const std::uint64_t piece_bytes = owner_.piece_bytes(to_self_[i].bytes);
    const auto pieces = (to_self_[i].bytes + piece_bytes - 1) / piece_bytes;
    block.loop(static_cast<std::int64_t>(pieces));
    block.copy(plan::input(plan::affine(to_self_[i].first, 1)),
               plan::output(plan::affine(from_self_[i].first, 1)));
    block.end_loop();
  }
  return {};
}

int MessageGroup::channel(int tag) {
  const auto index = std::find(tags_.begin(), tags_.end(), tag) - tags_.begin();
  if (static_cast<std::size_t>(index) == tags_.size()) tags_.push_back(tag);
  return static_cast<int>(index);
}

MessageGroup::Flow& MessageGroup::flow_of(int peer, bool sends, int channel) {
  const Key key(peer, sends, channel);
  auto found = flows_.find(key);
  if (found == flows_.end()) {
    const auto block = program_.block(channel, sends ? peer : -1, sends ? -1 : peer);
    found = flows_.emplace(key, Flow{block}).first;
  }
  return found->second;
}

}  // namespace unisono::comm
