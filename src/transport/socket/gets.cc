#include "transport/socket/gets.h"

#include "base/error.h"

namespace unisono::transport::socket {

void Gets::add(std::byte* destination, std::size_t bytes) {
  ++started_;
  if (bytes > 0)
    ours_.push(
        {.destination = destination, .bytes = bytes, .let_in = 0, .arrived = 0, .empty_behind = 0});
  else if (ours_.empty())
    ++completed_;
  else
    ++ours_[ours_.end() - 1].empty_behind;
}

Result<std::byte*> Gets::place(const Frame& answer) {
  const std::uint64_t number = answer.value;
  if (number < ours_.begin() || number >= ours_.end())
    return peer_error(peer_, "rank ", peer_, " answered get ", number, "; under way are ",
                      ours_.size(), " from ", ours_.begin());
  Get& get = ours_[number];
  if (answer.offset > get.bytes || answer.bytes > get.bytes - answer.offset ||
      answer.bytes > get.bytes - get.let_in)
    return peer_error(peer_, "rank ", peer_, " answered get ", number, " of ", get.bytes,
                      " bytes with ", answer.bytes, " at offset ", answer.offset, " after ",
                      get.let_in);
  get.let_in += static_cast<std::size_t>(answer.bytes);
  return get.destination + answer.offset;
}

void Gets::take_back(const Frame& answer) {
  if (answer.value >= ours_.begin() && answer.value < ours_.end())
    ours_[answer.value].let_in -= static_cast<std::size_t>(answer.bytes);
}

void Gets::arrived(const Frame& answer) {
  // It is not there where it was cleared meanwhile.
  if (answer.value < ours_.begin()) return;
  ours_[answer.value].arrived += static_cast<std::size_t>(answer.bytes);
  while (!ours_.empty()) {
    const Get& first = ours_[ours_.begin()];
    if (first.arrived < first.bytes) return;
    completed_ += 1 + first.empty_behind;
    ours_.pop();
  }
}

Status Gets::ask(const Frame& get) {
  if (asked_.size() == most)
    return peer_error(peer_, "rank ", peer_, " has more than ", most, " gets under way");
  asked_.push(get);
  return {};
}

}  // namespace unisono::transport::socket
