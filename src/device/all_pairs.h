// What the specialised kernels are given, in which every rank sends to every other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/common.h"
#include "device/stamps.h"

namespace unisono::device {

// What a specialised kernel does with data: whatever is asked for, or, of so many ranks at most,
// whole aligned words or units alone, as they are or sums of one type (kernels/data.cuh).
enum class DataKind : std::uint8_t { any, plain, float16, bfloat16, float32 };
inline constexpr int data_kinds = 5;
inline constexpr int max_plain_ranks = 4;

// The LL all-pairs kernels (kernels/ll_all_pairs.cuh): plans of one hop, in which blocks are taken
// or combined, and all-reduce in two, in which a segment is combined and then handed on. Slots of
// their own, each with a part for every block and hop.
enum class LlKind : std::uint8_t { take, combine, two_shot };
inline constexpr int all_pairs_max_ranks = 8;
inline constexpr int ll_max_blocks = 64;
inline constexpr std::size_t ll_slots = 2;
constexpr int ll_hops(LlKind kind) { return kind == LlKind::two_shot ? 2 : 1; }
// Bytes of a slot for each thread block and hop: fewer with many ranks and with two hops.
constexpr std::size_t ll_block_bytes(LlKind kind, int ranks) {
  return ranks <= 4 && kind != LlKind::two_shot ? std::size_t{32} << 10 : std::size_t{16} << 10;
}
constexpr std::size_t ll_all_pairs_slot_bytes(LlKind kind, int ranks) {
  return ll_block_bytes(kind, ranks) * ll_max_blocks * static_cast<std::size_t>(ll_hops(kind));
}
// To each rank in a hop: 16 bytes of a slot for each 8 of data.
constexpr std::size_t ll_max_bytes(LlKind kind, int ranks) {
  return ll_block_bytes(kind, ranks) * ll_max_blocks / 2;
}
// Before the slots, a word for each block, by which a receiver signals a sender.
inline constexpr std::size_t ll_greetings_bytes = sizeof(std::uint64_t) * ll_max_blocks;
// The data for a peer, and the destination of the data from it; 0: none. The own rank's entry is
// its local copy. Where data are combined, those received and the own source, in the order of the
// peers, make the own destination. A rank that sends has an own source.
struct LlPeer {
  std::uint64_t source;
  std::uint64_t destination;
  std::uint64_t out;   // where its slots of what this rank sends are
  std::uint64_t in;    // this rank's slots of what that one sends
  std::int64_t bytes;  // of both; in two hops a segment, the last of which are shorter
};
// A kernel waits for each line of 64 bytes of its parameters that it reads: what every call needs
// stands together.
struct LlLaunch {
  std::uint64_t states;       // BlockState[ll_max_blocks + 1]
  std::int64_t bytes;         // the most of any peer
  std::uint32_t block_units;  // of 8 bytes, for each block
  std::uint32_t block_bytes;  // of a slot, for each block
  std::int16_t rank;
  std::int16_t ranks;
  std::int16_t first;  // whose peers[0] is; the others follow by number, the lowest the highest
  std::int16_t own;    // which of the peers is this rank
  std::uint8_t sources_differ;
  std::uint8_t signals;  // only some send
  std::uint32_t tag;     // of the call
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  Arithmetic arithmetic;
  LlPeer peers[all_pairs_max_ranks];
};

// The LL128 all-pairs kernels (kernels/ll128_all_pairs.cuh), for calls of any size; a slot is for a
// warp, with a group of lines for either hop.
inline constexpr int ll128_max_blocks = 128;
inline constexpr int ll128_max_warps_of_block = 12;
inline constexpr int ll128_threads = 32 * ll128_max_warps_of_block;
inline constexpr int ll128_max_warps = ll128_max_blocks * ll128_max_warps_of_block;
inline constexpr std::size_t ll128_slots = 2;
inline constexpr std::size_t ll128_hops = 2;  // at most
// With more ranks fewer warps have as much on the way.
constexpr int ll128_warps_of_block(int ranks) {
  return ranks <= 4 ? ll128_max_warps_of_block : ll128_max_warps_of_block / 2;
}
constexpr std::size_t ll128_slots_bytes(int ranks, int blocks = ll128_max_blocks) {
  return static_cast<std::size_t>(blocks * ll128_warps_of_block(ranks)) * ll128_slots * ll128_hops *
         ll128_group_bytes;
}
// Thread blocks of a call by TMA bulk copies (kernels/tma_bulk.cuh), at most.
inline constexpr int bulk_max_blocks = 32;
// Calls that post where their data go, by thread blocks. Of this end: how many there were. Of the
// peer, stored by it: for each block, where this rank's data go, in this rank's addresses, or 0,
// each half with the call's number and tag, as in LL; and calls that each block has sent.
struct PostingCalls {
  alignas(128) std::uint64_t calls[ll128_max_blocks];
  alignas(128) std::uint32_t posts[ll128_max_blocks][4];
  alignas(128) std::uint64_t ends[ll128_max_blocks];
};
// What a connection's region holds after what all begin with (transport/nvlink/layout.h). Of this
// end: rounds of each warp, a word that says that they were given up; used are those, and the
// numbers of calls, in the connection with the lowest rank. Of the peer, stored by it: rounds that
// each warp is through with, and by TMA bulk copies what it posts of its inputs; then slots.
struct Ll128Region {
  std::uint64_t begin[16];
  std::uint64_t rounds[ll128_max_warps];
  alignas(128) std::uint32_t stopped;
  // In a call by TMA bulk copies: the runs of tiles that warps took beyond their first, and from
  // bit 32 on the warps that take no more; 0 between calls.
  alignas(128) std::uint64_t taken;
  std::uint64_t credits[ll128_max_warps];
  PostingCalls zero_copy;  // each block counts its own
  PostingCalls bulk;       // all blocks count all, however many a call has
  alignas(128) std::uint32_t inputs[ll128_max_blocks][4];
};
static_assert(sizeof(Ll128Region) % ll128_line_bytes == 0, "slots follow");
struct Ll128Peer {
  std::uint64_t source;       // what goes there in hop 0, or of the own rank is added
  std::uint64_t destination;  // where what comes from there is put, or of the own rank its sum
  std::uint64_t view;         // the destination in that rank's addresses; 0: it cannot reach it
  std::int64_t bytes;         // of all three
  std::uint64_t out;          // Ll128Region: the peer's
  std::uint64_t in;           // own
};
// In calls that post addresses, peers and sets are ordered by rank; otherwise by distance, the
// order in which they are added.
struct Ll128Launch {
  std::uint64_t states;  // Ll128Region of the lowest peer
  std::int64_t longest;  // of the peers' bytes, the same on all ranks
  std::int8_t rank;
  std::int8_t ranks;
  // Sets of ranks, as bits: receivers of data in hop 0; those whose data this rank also stores at
  // its own destination; sources of the sum; receivers of the sum; senders of data to put in place.
  std::uint8_t sends;
  std::uint8_t local_copies;
  std::uint8_t reduce_sources;
  std::uint8_t forwards;
  std::uint8_t receives;
  std::uint8_t hops;
  std::uint8_t sources_differ;
  std::uint8_t signals;
  std::uint8_t spreads;  // zero-copy: a block sends to one rank; the same on all ranks
  std::uint32_t tag;     // of the call
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  Arithmetic arithmetic;
  Ll128Peer peers[all_pairs_max_ranks];
  std::uint64_t key;  // which tells the host of a fallback (Mailbox); 0: it is told nothing
};

// Large calls by TMA bulk copies, on a small grid (kernels/tma_bulk.cuh): what one rank has, or
// what all have, added up, goes to where it is wanted, tile by tile, through stages of shared
// memory.
inline constexpr int bulk_max_warps = 8;      // of a block, that copy
inline constexpr int bulk_max_stages = 12;    // of a warp
inline constexpr int bulk_stages_behind = 3;  // of copies, whose stores read; a warp has more
inline constexpr std::size_t bulk_shared_bytes = std::size_t{224} << 10;
// Posted by a rank that has no such buffer. 0: not all reach what they need.
inline constexpr std::uint64_t bulk_no_buffer = 1;
struct BulkFlow {
  std::int64_t source;         // bytes from the beginning of the inputs
  std::int64_t destination;    // of the outputs
  std::uint64_t destinations;  // ranks, as bits
};
struct BulkLaunch {
  Ll128Launch lines;                // how the call goes unless all reach what they need
  std::int32_t blocks;              // that copy; of a rank that others do not reach, the first
  std::int32_t all_blocks;          // of such a rank: by which lines go if none are reached
  std::int32_t warps;               // that copy, of a block: the first
  std::int64_t bytes;               // of each flow
  std::uint32_t sources;            // ranks, as bits: one, or all, whose data are added up
  std::int32_t flows;               // tiles of each in turn
  std::int32_t tile_bytes;          // of shared memory, of each source in a stage
  std::int32_t stages;              // of each warp
  std::int32_t run_bytes;           // that a warp takes at once, of each flow
  std::int32_t has_fixed_schedule;  // warps know which are theirs; else they ask a counter
  // By rank: this rank's buffers in that rank's addresses; all 0 unless all reach what they need.
  std::uint64_t inputs[all_pairs_max_ranks];
  std::uint64_t outputs[all_pairs_max_ranks];
  BulkFlow flow[all_pairs_max_ranks];
};

}  // namespace unisono::device
