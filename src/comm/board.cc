#include "comm/board.h"

#include <algorithm>

#include "base/log.h"
#include "transport/fault.h"

namespace unisono::comm {

Board::Board(const std::string& name, int rank, std::vector<int> neighbours)
    : neighbours_(std::move(neighbours)), name_("/unisono-board-" + name) {
  const auto own = std::find(neighbours_.begin(), neighbours_.end(), rank);
  own_ = static_cast<std::size_t>(own - neighbours_.begin());
  if (neighbours_.size() == 1) return;
  auto memory = sys::SharedMemory::open(name_, neighbours_.size() * sizeof(Line));
  if (!memory.ok()) {
    log(LogLevel::info, "timeouts will not tell who has not joined: ", memory.error().message);
    return;
  }
  memory_.emplace(std::move(memory).value());
  own_line_ = &line_of(own_);
}

void Board::all_have_joined() {
  if (memory_) sys::SharedMemory::unlink(name_);
}

Board::Line& Board::line_of(std::size_t neighbour) const {
  if (!memory_) return const_cast<Line&>(lonely_);
  // Zeroed memory is a valid atomic of value 0 on every platform that this library runs on.
  return *reinterpret_cast<Line*>(memory_->data() + neighbour * sizeof(Line));
}

std::vector<int> Board::absent(std::uint64_t sequence) const {
  std::vector<int> out;
  if (!memory_) return out;
  for (std::size_t i = 0; i < neighbours_.size(); ++i)
    if (i != own_ && line_of(i).started.load(std::memory_order_relaxed) < sequence + 1)
      out.push_back(neighbours_[i]);
  return out;
}

// A fault is one word that says all; but who sees that this rank has closed a connection shall see
// why, too: release here, acquire in told().
void Board::give_up(const transport::Fault& fault) {
  own_line_->fault.store(transport::pack(fault), std::memory_order_release);
}

std::optional<Error> Board::told() const {
  if (!memory_) return std::nullopt;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    if (i == own_) continue;
    const std::uint64_t word = line_of(i).fault.load(std::memory_order_acquire);
    if (word != 0) return transport::told_error(neighbours_[i], transport::unpack_fault(word));
  }
  return std::nullopt;
}

std::size_t Board::memory_bytes() const { return memory_ ? memory_->bytes() : 0; }

}  // namespace unisono::comm
