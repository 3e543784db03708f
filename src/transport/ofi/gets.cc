#include "transport/ofi/gets.h"

#include <utility>

#include "base/error.h"

namespace unisono::transport::ofi {

Note Gets::add(RegisteredMemory destination, const RemoteMemory& memory, std::size_t offset,
               std::size_t bytes, std::uint64_t in_place) {
  ++started_;
  const Note told{.sequence = first_number_ + under_way_.size(),
                  .value = memory.key,
                  .offset = offset,
                  .bytes = bytes,
                  .to_key = destination.key,
                  .to_address = destination.address};
  under_way_.push_back({.destination = std::move(destination),
                        .bytes = bytes,
                        .least_last = in_place + pieces_of(bytes, piece_bytes)});
  return told;
}

void Gets::add_empty() {
  ++started_;
  if (under_way_.empty())
    ++completed_;
  else
    ++under_way_.back().empty_behind;
}

Status Gets::answered(const Note& note) {
  const std::uint64_t index = note.value - first_number_;
  if (index >= under_way_.size() || under_way_[index].last != 0 || note.sequence == 0)
    return peer_error(peer_, "rank ", peer_, " answers get ", note.value, " by its write ",
                      note.sequence, "; under way are ", under_way_.size(), " from ", first_number_,
                      ", each to be answered once");
  Get& get = under_way_[index];
  // libfabric tells this end that a write has come, but not of how many bytes.
  if (note.bytes != get.bytes || note.sequence < get.least_last)
    return peer_error(peer_, "rank ", peer_, " answers get ", note.value, " of ", get.bytes,
                      " bytes with ", note.bytes, ", by its write ", note.sequence,
                      "; all of them have come by its write ", get.least_last, " at the earliest");
  get.last = note.sequence;
  return {};
}

void Gets::arrived(std::uint64_t in_place) {
  while (!under_way_.empty()) {
    const Get& first = under_way_.front();
    if (first.last == 0 || first.last > in_place) return;
    completed_ += 1 + first.empty_behind;
    under_way_.pop_front();
    ++first_number_;
  }
}

}  // namespace unisono::transport::ofi
