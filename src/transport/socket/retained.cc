#include "transport/socket/retained.h"

#include <utility>

#include "base/error.h"

namespace unisono::transport::socket {

void Retained::add(const Frame& frame, const std::byte* payload, std::uint64_t put,
                   std::size_t stream, bool may_be_copied) {
  items_.push({.frame = frame,
               .payload = payload,
               .copy = {},
               .put = put,
               .may_be_copied = may_be_copied,
               .stream = stream,
               .place = given_[stream]++,
               .waits = true});
}

void Retained::give(Item& item, std::size_t stream) {
  item.stream = stream;
  item.place = given_[stream]++;
  item.waits = true;
}

Retained::Left Retained::left(std::uint64_t number) {
  Item& item = items_[number];
  item.waits = false;
  if (item.put == no_put) return {no_put, false};
  const auto bytes = static_cast<std::size_t>(item.frame.bytes);
  if (!item.may_be_copied || (item.is_piece() && copied_bytes_ + bytes > most_copied_bytes))
    return {item.put, true};
  if (item.payload != nullptr) {
    item.copy.assign(item.payload, item.payload + bytes);
    item.payload = item.copy.data();
    copied_bytes_ += bytes;
  }
  return {std::exchange(item.put, no_put), false};
}

void Retained::pop() {
  Item& item = items_[items_.begin()];
  copied_bytes_ -= item.copy.size();
  std::vector<std::byte>().swap(item.copy);
  items_.pop();
}

Status Retained::lose(std::size_t stream, std::uint64_t came, int peer) {
  if (came > given_[stream])
    return peer_error(peer, "rank ", peer, " counted ", came, " frames on stream ", stream,
                      ", on which ", given_[stream], " were sent");
  for (std::uint64_t number = items_.begin(); number != items_.end(); ++number) {
    Item& item = items_[number];
    if (item.stream != stream) continue;
    item.stream = no_stream;
    if (item.place < came) continue;
    item.waits = true;
    lost_.push(number);
  }
  return {};
}

void Retained::drop_payloads() {
  lost_.clear();
  for (std::uint64_t number = items_.begin(); number != items_.end(); ++number)
    if (items_[number].copy.empty()) items_[number].payload = nullptr;
}

void Retained::drop_payload(std::uint64_t put) {
  for (std::uint64_t number = items_.begin(); number != items_.end(); ++number)
    if (items_[number].put == put) items_[number].payload = nullptr;
}

}  // namespace unisono::transport::socket
