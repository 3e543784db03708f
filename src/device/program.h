// What a kernel is given: a rank's program as flat data, the memory of one call, and where to tell
// of a failure. Written by the host (src/engine/gpu), read by the kernels; no pointers of either
// side's own.
//
// Sequence numbers live in device memory (LinkCounters, BlockState), so that a launch which a CUDA
// graph replays goes on where the last one stopped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stamps.h"

namespace unisono::device {

inline constexpr int threads_per_block = 512;
// A launch carries the counts of blocks of unequal size by value.
inline constexpr int max_uneven_ranks = 16;
inline constexpr std::size_t unit_bytes = 16;  // what one thread moves at once
// What a receiver posts to the sender of a link: for each of its messages in a tile, or for a large
// transfer, where it is to be put. Messages beyond so many go through slots.
inline constexpr int max_addresses = 63;
// Ranks of a call whose messages can be zero-copy.
inline constexpr int max_mapped_peers = 16;
// A destination that begins elsewhere is reached through slots.
inline constexpr std::size_t address_alignment = unit_bytes;
// LL: 4 bytes of data and 4 of flag in each word; a 16-byte store carries two words.
inline constexpr std::size_t ll_unit_payload = 8;
// LL128: 120 bytes of data and 8 of flag in each line.
inline constexpr std::size_t ll128_line_bytes = 128;
inline constexpr std::size_t ll128_line_payload = 120;

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

// One end of a connection in one protocol; see transport/nvlink. Addresses in device memory.
struct Link {
  std::uint64_t out_slots;       // the peer's: messages go there
  std::uint64_t out_arrived;     // the peer's signal: messages sent (Simple)
  std::uint64_t out_given_back;  // own signal: messages of ours that the peer has taken
  std::uint64_t in_slots;        // own
  std::uint64_t in_arrived;      // own signal
  std::uint64_t in_given_back;   // the peer's signal
  std::uint64_t out_addresses;   // own PeerAddresses: where the peer wants what is sent
  std::uint64_t in_addresses;    // the peer's PeerAddresses
  std::uint64_t counters;        // own LinkCounters
  std::int32_t peer;
  std::int32_t channel;
};

struct LinkCounters {
  std::uint64_t sent;      // messages, of all launches so far
  std::uint64_t received;  // messages taken
  std::uint64_t posted;    // times that this end has said where messages go
  std::uint64_t heeded;    // times that the peer has, as far as they were taken
};

// By the receiver, in the sender's memory. A post is a credit, too: the destinations may be
// written.
struct PeerAddresses {
  std::uint64_t number;  // of posts, of all launches so far; stored last
  // In the sender's addresses, of each message's first tile; 0: through slots.
  std::uint64_t addresses[max_addresses];
};

struct Block {
  std::uint32_t first_step;
  std::uint32_t steps;
  std::int32_t send_link;  // -1: none
  std::int32_t recv_link;
  std::uint32_t sends;  // messages of a tile, on each
  std::uint32_t receives;
};

// A thread block's state, on cache lines of its own because the others poll it.
struct alignas(128) BlockState {
  std::uint64_t launches;  // of this program that are complete
  std::uint64_t progress;  // (launch + 1) << 32 | steps complete, counted over tiles
};

// What a wait that was given up waited for; in host memory. `state` is stored last.
struct Failure {
  enum Kind : std::uint32_t { none, message, credit, dependency, destination };
  enum Reason : std::uint32_t { timed_out = 1, aborted = 2 };
  std::uint32_t state;  // 0: nothing; else a Reason
  std::uint32_t kind;
  std::int32_t rank;
  std::int32_t peer;
  std::int32_t channel;
  std::int32_t block;
  std::int32_t step;
  std::int32_t tile;
  std::uint64_t expected;
  std::uint64_t got;
};

// Host memory that kernels and the host share, one for each communicator.
struct Mailbox {
  alignas(128) std::uint32_t stop;   // host to kernels: give up
  alignas(128) std::uint32_t taken;  // the first wait that is given up takes the record below
  Failure failure;
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

// The arithmetic of a call: unisono::DataType, and what combines two elements.
enum class Combine : std::uint8_t { sum, product, min, max };
struct Arithmetic {
  std::uint8_t type;
  std::uint8_t combine;
  std::uint8_t scales_input;  // pre_multiplied_sum: what is read from the input is scaled
  std::uint8_t element_bytes;
  std::int32_t divisor;  // average, in specialised kernels: of complete sums; 0: none
  std::int64_t integer_factor;
  double real_factor;
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
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  // By rank: where it reaches this rank's output; 0: it does not.
  std::uint64_t peer_outputs[max_mapped_peers];
  UnevenBlocks uneven;
};
static_assert(sizeof(Launch) <= 4096, "a kernel's parameters are limited to 4 KiB");

// What a specialised kernel does with data: whatever is asked for, or, of so many ranks at most,
// whole aligned words or units alone, as they are or sums of one type (kernels/data.cuh).
enum class DataKind : std::uint8_t { any, plain, float16, bfloat16, float32 };
inline constexpr int data_kinds = 5;
inline constexpr int max_plain_ranks = 4;

// The LL all-pairs kernels (kernels/ll_all_pairs.cuh): plans of one hop, in which blocks are taken
// or combined, and all-reduce in two, in which a segment is combined and then handed on. Slots of
// their own, each with a part for every block and hop.
enum class LlKind : std::uint8_t { take, combine, two_shot };
inline constexpr int ll_kinds = 3;
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
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  Arithmetic arithmetic;
  LlPeer peers[all_pairs_max_ranks];
  // As the peers, a word for each block: this rank's to that one and that one's to this.
  std::uint64_t greetings_out[all_pairs_max_ranks];
  std::uint64_t greetings_in[all_pairs_max_ranks];
};

// The LL128 all-pairs kernels (kernels/ll128_all_pairs.cuh), for calls of any size; a slot is for a
// warp, with a group of lines for either hop.
inline constexpr int ll128_max_blocks = 128;
inline constexpr int ll128_max_warps_of_block = 12;
inline constexpr int ll128_threads = 32 * ll128_max_warps_of_block;
inline constexpr int ll128_max_warps = ll128_max_blocks * ll128_max_warps_of_block;
inline constexpr std::size_t ll128_group_payload = 8 * ll128_line_payload;
inline constexpr std::size_t ll128_group_bytes = 8 * ll128_line_bytes;
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
// each half with the call's number, as in LL; and calls that each block has sent.
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
  std::int16_t rank;
  std::int16_t ranks;
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
  std::uint64_t mailbox;
  std::int64_t timeout_ns;
  Stamp stamp;
  Arithmetic arithmetic;
  Ll128Peer peers[all_pairs_max_ranks];
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

// A group of sends and receives. Message by message, each direction of each peer has thread blocks,
// among which a message is cut by its size alone, so that both ends agree whatever the groups are:
// in pieces over its first `channels` channels in turn, a block each; or, where it is short, in
// groups of LL128's lines (copy/group.cuh) over as many warps in turn.
struct Transfer {
  // For a receive that is `direct`: in the sender's addresses.
  std::uint64_t data;
  std::int64_t bytes;
  std::uint16_t channels;
  std::uint8_t posts;         // by its size alone: the receiver says where it goes
  std::uint8_t direct;        // receives
  std::uint32_t piece_bytes;  // 0: in LL128
};
struct TransferBlock {
  std::uint64_t link;   // Link, in device memory; 0: no message uses slots
  std::uint64_t lines;  // Link of messages in LL128, in device memory
  std::uint16_t first_transfer;
  std::uint16_t transfers;
  std::uint8_t channel;  // this block's, of the direction's `channels`
  std::uint8_t channels;
  std::uint8_t sends;
};
inline constexpr int max_transfer_blocks = 128;
inline constexpr int small_launch_transfers = 40;
inline constexpr int max_transfers = 1024;
// The kernel comes in two sizes, because parameters cost time by their size.
template <int most>
struct MessagesLaunch {
  TransferBlock blocks[max_transfer_blocks];
  Transfer transfers[most];
  std::int32_t rank;
  std::uint32_t slots;
  std::uint32_t slot_bytes;
  std::uint64_t mailbox;
  std::uint64_t stopped;
  std::int64_t timeout_ns;
  Stamp stamp;
};
static_assert(sizeof(MessagesLaunch<small_launch_transfers>) <= 4096);
static_assert(sizeof(MessagesLaunch<max_transfers>) <= 32764, "what CUDA 12.1 takes");

// What a connection holds for messages in LL128, where slots of others are: of this end, groups
// that each warp has sent and has taken; of the peer, stored by it, groups of this end's that its
// warps have taken; then each warp's slots.
inline constexpr int ll128_messages_warps = 256;
inline constexpr std::size_t ll128_messages_slots = 4;
struct Ll128Messages {
  std::uint64_t sent[ll128_messages_warps];
  std::uint64_t taken[ll128_messages_warps];
  std::uint64_t given_back[ll128_messages_warps];
};
inline constexpr std::size_t ll128_messages_bytes =
    sizeof(Ll128Messages) +
    std::size_t{ll128_messages_warps} * ll128_messages_slots * ll128_group_bytes;
// A group whose messages are few and all in LL128 has a kernel of its own.
struct Ll128MessagesRoute {
  std::uint64_t in;   // Ll128Messages, own
  std::uint64_t out;  // the peer's
  std::int16_t peer;
  std::uint16_t sends;
  std::uint8_t first_block;
  std::uint8_t blocks;
  std::uint8_t first_transfer;
  std::uint8_t transfers;
};
inline constexpr int ll128_messages_max_routes = 14;
inline constexpr int ll128_messages_max_transfers = 16;
struct Ll128MessagesLaunch {
  std::uint64_t mailbox;
  std::uint64_t stopped;
  std::int64_t timeout_ns;
  Stamp stamp;
  std::int32_t rank;
  std::int32_t way_count;
  Ll128MessagesRoute ways[ll128_messages_max_routes];
  Transfer transfers[ll128_messages_max_transfers];
};

// average of what is interpreted: divides elements that are all there.
struct DivideLaunch {
  std::uint64_t data;
  std::int64_t elements;
  Stamp stamp;
  std::int32_t ranks;
  std::uint8_t type;
  std::uint8_t element_bytes;
};

}  // namespace unisono::device
