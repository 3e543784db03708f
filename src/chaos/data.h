// The data of chaos: what each rank gives, and what the result must be.
#pragma once

#include <unisono/communicator.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chaos/scenario.h"

namespace unisono::chaos {

struct Buffers {
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // poisoned
};

// `members` are the group's ranks by their numbers in the job, `me` this one's place.
Buffers make_buffers(const Operation& operation, int call, const std::vector<int>& members, int me);
// The call of a group of so many ranks.
Call call_of(const Operation& operation, int ranks, Buffers& buffers);
// What is wrong with the output, if anything.
std::optional<std::string> check(const Operation& operation, int call,
                                 const std::vector<int>& members, int me, const Buffers& buffers);

// Of a message from one member to another.
std::vector<std::byte> message_of(const Operation& operation, int sender);

// A number that is the same wherever it is asked for.
std::uint64_t hash(std::uint64_t a, std::uint64_t b, std::uint64_t c);

}  // namespace unisono::chaos
