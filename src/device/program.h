// A rank's program as flat data, and what a launch of the interpreter is given.
#pragma once

#include <cstdint>

#include "device/common.h"
#include "device/link.h"
#include "device/stamps.h"

namespace unisono::device {

// A launch carries the counts of blocks of unequal size by value.
inline constexpr int max_uneven_ranks = 16;

// What a step does, as sums of bits: an operation of the plan is what it takes and what it gives.
//   value = message and source and destination, those that it takes, combined
//   destination = value, message = value, those that it gives
enum StepFlags : std::uint8_t {
  takes_message = 1,
  takes_source = 2,
  takes_destination = 4,  // reduce only
  gives_destination = 8,
  gives_message = 16,
  publishes = 32,  // a step of another thread block waits for this one
};

struct Step {
  std::uint8_t flags;
  std::uint8_t source_buffer;  // plan::Buffer
  std::uint8_t destination_buffer;
  // The number, from 1, among the link's posted addresses of the message received or sent; 0: the
  // message is staged through a slot. Both ends count the link's messages in a tile.
  std::uint8_t in_address;
  std::uint8_t out_address;
  std::uint16_t count;  // chunks; 0: a token, whose message has no data, or nothing but waits
  std::uint16_t dependencies;
  std::uint32_t first_dependency;
  std::int32_t source;  // chunk
  std::int32_t destination;
  std::int32_t number;  // unrolled, in its thread block
};

// Waits until `block` has completed `steps` steps of the same tile.
struct Dependency {
  std::int32_t block;
  std::int32_t steps;
};

struct Block {
  std::uint32_t first_step;
  std::uint32_t steps;
  std::int32_t send_link;  // -1: none
  std::int32_t recv_link;
  std::uint32_t sends;  // messages of a tile, on each
  std::uint32_t receives;
};

struct Program {
  std::uint64_t blocks;        // Block[]
  std::uint64_t steps;         // Step[]
  std::uint64_t dependencies;  // Dependency[]
  std::uint64_t links;         // Link[]
  std::uint64_t states;        // BlockState[]
  std::int32_t block_count;
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t chunks_per_block;
  std::uint8_t protocol;  // unisono::Protocol
  std::uint32_t slots;
  std::uint32_t slot_bytes;
};

// Blocks of unequal size: elements, and where they start. Unused where blocks are equal.
struct UnevenBlocks {
  std::int64_t input_counts[max_uneven_ranks];
  std::int64_t input_displacements[max_uneven_ranks];
  std::int64_t output_counts[max_uneven_ranks];
  std::int64_t output_displacements[max_uneven_ranks];
};

struct Launch {
  Program program;
  Arithmetic arithmetic;
  std::uint64_t buffers[3];  // by plan::Buffer
  std::int64_t count;        // elements of a block
  std::int64_t chunk_elements;
  std::int64_t tile_elements;
  std::int32_t tiles;
  std::uint32_t piece_bytes;  // of a slot, for each chunk of a message
  std::uint8_t is_uneven;
  std::uint8_t posts;  // receivers say where messages go; the same on all ranks
  std::uint32_t tag;   // of the call
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  // By rank: where it reaches this rank's output; 0: it does not.
  std::uint64_t peer_outputs[max_mapped_peers];
  UnevenBlocks uneven;
};
static_assert(sizeof(Launch) <= 4096, "a kernel's parameters are limited to 4 KiB");

// average of integers: divides sums that are complete, after the kernel that made them.
struct DivideLaunch {
  std::uint64_t data;
  std::int64_t elements;
  Stamp stamp;
  std::int32_t ranks;
  std::uint8_t type;
  std::uint8_t element_bytes;
};

}  // namespace unisono::device
