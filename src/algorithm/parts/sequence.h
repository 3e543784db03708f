// Writing many like steps in few loops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithm/parts/group.h"
#include "plan/builder.h"

namespace unisono::algorithm {

// Steps in order, before they are written: constant indices, no dependencies.
class StepList {
 public:
  void send(const Run& from) { add(plan::Operation::send, from, from); }
  void recv(const Run& to) { add(plan::Operation::recv, to, to); }
  void copy(const Run& from, const Run& to) { add(plan::Operation::copy, from, to); }
  void copy_send(const Run& from, const Run& to) { add(plan::Operation::copy_send, from, to); }
  void recv_copy_send(const Run& to) { add(plan::Operation::recv_copy_send, to, to); }
  void recv_reduce_copy(const Run& from, const Run& to) {
    add(plan::Operation::recv_reduce_copy, from, to);
  }
  void recv_reduce_send(const Run& from) { add(plan::Operation::recv_reduce_send, from, from); }

  // Appends the steps to the thread block, as loops wherever they are progressions, or progressions
  // of up to a few of those. Chunk numbers count modulo `modulus`, which is above all of them: on
  // a ring of m chunks, m makes the way round one progression. 0: some such number.
  void write_to(plan::BlockBuilder& block, std::int64_t modulus = 0) const;

 private:
  // Where an operation has no source or no destination, `from` and `to` are the same.
  struct Item {
    plan::Operation operation;
    plan::Buffer from_buffer, to_buffer;
    int count;
    std::int64_t from, to;
    bool is_like(const Item& other) const {
      return operation == other.operation && from_buffer == other.from_buffer &&
             to_buffer == other.to_buffer && count == other.count;
    }
  };
  struct Progression;
  struct Repetition;

  void add(plan::Operation operation, const Run& from, const Run& to) {
    items_.push_back({operation, from.location.buffer, to.location.buffer, from.count,
                      from.location.index.base, to.location.index.base});
  }
  std::vector<Progression> progressions(std::int64_t modulus) const;
  static Repetition repetition_at(const std::vector<Progression>& all, std::size_t at,
                                  std::size_t period, std::int64_t modulus);
  static void write(plan::BlockBuilder& block, const Progression& it, const Progression* next,
                    std::int64_t modulus);

  std::vector<Item> items_;
};

}  // namespace unisono::algorithm
