// How the target of a remote write learns that it has arrived, and which way a provider has.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace unisono::transport::ofi {

class Endpoint;

enum class Signalling : std::uint8_t {
  data,  // by 32 bits that its completion queue tells with the write
  ring,  // by a word that is written behind it, into a ring that the target polls
};

std::string_view describe(Signalling way);

// The endpoint puts to itself, because providers offer completion data that they refuse or lose.
// Without them the word in the ring needs a wire that keeps writes in order; an environment error
// where neither works. The endpoint ends with the trial, and whatever of it is under way.
Result<Signalling> try_signalling(std::unique_ptr<Endpoint> endpoint);

}  // namespace unisono::transport::ofi
