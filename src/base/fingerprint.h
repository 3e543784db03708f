// What the ranks of a call must agree on, in one word, which travels with every message of the
// call.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <string>

namespace unisono {

// What a rank calls. A field that the ranks need not agree on is left as it is here.
struct Fingerprint {
  Collective collective = Collective::barrier;
  DataType type = DataType::int8;
  ReduceOperation operation = ReduceOperation::sum;
  // For custom: a hash of the program's name.
  std::uint32_t root = 0;
  std::int64_t count = 0;
};

// Never 0, which stands for no call. The word decodes to the call: it holds a root below 2^16 and a
// count below 2^34, of larger ones the low bits.
std::uint64_t pack(const Fingerprint& fingerprint);

// "all_reduce of 10 float32, sum", of a packed fingerprint. It may come from a peer: any word has a
// description.
std::string describe_call(std::uint64_t fingerprint);

}  // namespace unisono
