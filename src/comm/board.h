// Who has joined which call, and who gave up: a page of shared memory for each node of a
// communicator, on which every rank stores the number of the collective that it started last, and
// its failure.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sys/shared_memory.h"
#include "transport/transport.h"

namespace unisono::comm {

class Board {
 public:
  // `neighbours` are the ranks on this rank's node, in order, this one among them. `name` is the
  // same for these and for no other communicator. Where shared memory cannot be had, only this rank
  // is known.
  Board(const std::string& name, int rank, std::vector<int> neighbours);

  // Once all neighbours have made theirs: removes the name, so that nothing is left behind.
  void all_have_joined();

  // This rank has started call `sequence`. Relaxed, as in absent(): the numbers are compared with
  // each other only, long after they were stored.
  void joined(std::uint64_t sequence) {
    own_line_->started.store(sequence + 1, std::memory_order_relaxed);
  }
  // Neighbours known not to have started call `sequence`, in order.
  std::vector<int> absent(std::uint64_t sequence) const;
  // This rank runs on that processor; on none while it gives it to others. Relaxed, as in
  // any_at_rest(): a guess at where ranks are.
  void runs_on(int processor) {
    processor_ = processor;
    own_line_->processor.store(processor + 1, std::memory_order_relaxed);
  }
  void rests() { own_line_->processor.store(0, std::memory_order_relaxed); }
  // Whether `matches(rank)` for a neighbour that does not run on another processor than this rank.
  template <class Matches>
  bool any_at_rest(Matches matches) const {
    return any_whose_line(matches, [this](const Line& line) {
      const int processor = line.processor.load(std::memory_order_relaxed) - 1;
      return processor < 0 || processor == processor_;
    });
  }
  // Whether `matches(rank)` for a neighbour that does something else: it has not started call
  // `sequence`, and does not rest either. As above.
  template <class Matches>
  bool any_elsewhere(std::uint64_t sequence, Matches matches) const {
    return any_whose_line(matches, [sequence](const Line& line) {
      return line.started.load(std::memory_order_relaxed) < sequence + 1 &&
             line.processor.load(std::memory_order_relaxed) != 0;
    });
  }
  // This rank gives up for that fault. Any thread.
  void give_up(const transport::Fault& fault);
  // What a neighbour that gave up told: connections tell it too, but not those that were never
  // made.
  std::optional<Error> told() const;
  // How many ranks have a line, this one among them; 1 where there is no shared memory.
  std::size_t ranks() const { return memory_ ? neighbours_.size() : 1; }
  std::size_t memory_bytes() const;

 private:
  // One line a rank: every collective stores to it.
  struct alignas(64) Line {
    std::atomic<std::uint64_t> started{0};  // the sequence number plus 1; 0: none
    std::atomic<std::uint64_t> fault{0};    // packed; 0: none
    std::atomic<int> processor{0};          // that it was last seen on, plus 1; 0: none
  };
  Line& line_of(std::size_t neighbour) const;
  // Whether there is a neighbour of whose line `says(line)` and of whose rank `matches(rank)`.
  template <class Matches, class Says>
  bool any_whose_line(Matches matches, Says says) const {
    for (std::size_t i = 0; i < neighbours_.size(); ++i)
      if (i != own_ && says(line_of(i)) && matches(neighbours_[i])) return true;
    return false;
  }

  std::vector<int> neighbours_;
  std::size_t own_ = 0;  // this rank's place among them
  std::string name_;
  std::optional<sys::SharedMemory> memory_;
  Line lonely_;  // stands for the page where there is none
  Line* own_line_ = &lonely_;
  int processor_ = -1;  // as its line tells
};

}  // namespace unisono::comm
