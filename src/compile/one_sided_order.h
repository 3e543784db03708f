// The order that signals and waits make between steps of different ranks.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/module.h"

namespace unisono::compile {

// Instructions are named by their numbers, in the order in which they are added.
class OneSidedOrder {
 public:
  // Chunks that were put, by the cells that they come to.
  struct Put {
    std::int32_t instruction;
    std::int32_t cell;
    std::int32_t count;
    std::int32_t shape;
  };
  struct Signal {
    std::int32_t instruction;
    std::vector<Put> puts;  // since the one before
  };

  void put(const Operation& it, const Put& put) { ways_[way(it)].new_puts.push_back(put); }
  // The puts that the signal follows.
  const std::vector<Put>& signal(const Operation& it, std::int32_t instruction);
  // The signal that the wait is for.
  const Signal& wait(const Operation& it, std::int32_t instruction);

  // The wait by which the last instruction runs after one of another rank. Misuse, the race, if
  // there is none.
  Result<std::int32_t> wait_after(const Module& module, const Need& need);
  // Adds what signals need of steps that were found to run before them.
  void add_needs(Module& module);

 private:
  struct OneWay {
    std::vector<Put> new_puts;
    std::vector<Signal> signals;
    std::size_t waits = 0;
  };
  struct Ordering {
    std::int32_t signal;
    std::int32_t wait;
  };
  using Way = std::tuple<std::int32_t, std::int32_t, int>;
  static Way way(const Operation& it) { return {it.source_rank, it.destination_rank, it.channel}; }

  std::map<Way, OneWay> ways_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Ordering>> orderings_;  // from, to
  std::vector<std::pair<std::int32_t, Need>> late_needs_;  // of instructions before the last
};

}  // namespace unisono::compile
