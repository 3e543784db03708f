// The plan: what every rank does in one collective. Pure data; docs/reference/plan.md has the
// grammar.
//
//   plan         = header, one program a rank
//   program      = thread blocks, scratch blocks
//   thread block = channel, at most one peer to send to, at most one to receive from, body
//   body         = (step | loop of a body)*
//   step         = operation on (buffer, chunk, count), after steps of other thread blocks
//
// Buffers. Each rank has an input, an output and a scratch buffer. A buffer is a sequence of
// blocks; a block holds `count` elements (the collective's count: what one rank contributes or
// receives; in all_to_all_v each block has its own). Every block is divided into
// `chunks_per_block` chunks, the last ones ragged (see chunk_layout.h). Chunk i of a buffer is
// chunk i mod chunks_per_block of block i / chunks_per_block. Scratch blocks are shaped like data
// blocks, so a chunk's size depends only on its place in its block, and sender and receiver agree
// on it. A message of no bytes is not sent.
//
// Tiles. An executor cuts every chunk into tiles, such that the largest step of one tile fits in
// one slot, and runs the whole program once for each tile. Thread blocks go through the tiles on
// their own, held together only by messages and by `after`, which refers to the same tile.
// Tiles touch disjoint memory, and a program leaves no message behind, so a plan that is right
// for one tile is right for all.
//
// Messages. A connection is (sender, receiver, channel). Per tile, its n-th sending step matches
// its n-th receiving step. A connection holds a finite number of slots, one message in each: a
// sending step blocks while all are full.
//
// Aliasing. In a plan that is `in_place`, all_reduce, broadcast, reduce, all_to_all and custom have
// input = output; all_gather has input = block `rank` of the output; reduce_scatter has output =
// block `rank` of the input; gather at its root has input = block `root` of the output; scatter at
// its root has output = block `root` of the input. Out of place, the input is never written.
//
// Reductions are commutative. A step reads a rank's own raw contribution through `input`, exactly
// so (pre-multiplication and averages of floats scale it there), and everything else through
// `output` and `scratch`. The executor divides averages of integers when they are complete.
#pragma once

#include <unisono/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace unisono::plan {

inline constexpr int format_version = 1;
inline constexpr int max_loop_depth = 2;

enum class Buffer : std::uint8_t { input, output, scratch };
inline constexpr int buffer_count = 3;

// The values of the enclosing loops' variables, outermost first.
using LoopValues = std::array<std::int64_t, max_loop_depth>;
// Their names in texts and messages.
inline constexpr std::array<std::string_view, max_loop_depth> loop_variables{"i", "j"};

// offset + scale * ((base + sum of coefficient[d] * loop[d]) mod modulus); modulus 0 = no modulo.
// The modulo is the mathematical one: never negative.
struct Index {
  std::int64_t base = 0;
  std::array<std::int64_t, max_loop_depth> coefficient{};
  std::int64_t modulus = 0;
  std::int64_t scale = 1;
  std::int64_t offset = 0;

  Index() = default;
  Index(std::int64_t constant) : base(constant) {}  // implicit: most indices are constants

  std::int64_t at(const LoopValues& loops) const;
  bool is_constant() const;
  bool operator==(const Index&) const = default;
};

struct Location {
  Buffer buffer = Buffer::input;
  Index index;
  bool operator==(const Location&) const = default;
};

// Names read in the order in which things happen. S is the step's source, D its destination, M a
// message received, "->" a message sent; (+) the collective's reduction.
enum class Operation : std::uint8_t {
  send,                   // -> S
  recv,                   // D = M
  copy,                   // D = S
  reduce,                 // D = D (+) S
  copy_send,              // D = S, -> S
  recv_copy_send,         // D = M, -> M
  recv_reduce_copy,       // D = M (+) S
  recv_reduce_send,       // -> M (+) S
  recv_reduce_copy_send,  // D = M (+) S, -> D
  put,                    // send peer's D = S, without a message
  signal,                 // -> a token to the send peer, after all puts before it
  wait,                   // takes a token of the receive peer; its puts before it are visible
  read_reduce,            // D = D (+) S of each of `peers`, in their order
  barrier,                // all thread blocks of the rank arrive before any goes on
};
inline constexpr int operation_count = 14;

std::string_view name(Operation operation);
std::optional<Operation> operation_from_name(std::string_view name);
std::string_view name(Buffer buffer);
std::optional<Buffer> buffer_from_name(std::string_view name);

bool sends(Operation operation);               // puts a message (or token) on the connection
bool receives(Operation operation);            // takes one
bool reads_source(Operation operation);        // uses `source`
bool writes_destination(Operation operation);  // uses `destination`
bool reduces(Operation operation);             // applies the reduction
bool is_one_sided(Operation operation);        // put, signal, wait, read_reduce

// Waits until `thread_block` of the same rank has completed `steps` steps of the same tile
// (counting unrolled loops).
struct Dependency {
  int thread_block = 0;
  Index steps;
  bool operator==(const Dependency&) const = default;
};

struct Step {
  Operation operation = Operation::copy;
  Location source{};       // default unless reads_source
  Location destination{};  // default unless writes_destination
  int count = 1;           // chunks: source and destination each cover index .. index + count - 1
  std::vector<Dependency> after{};
  std::vector<int> peers{};  // read_reduce only
  bool operator==(const Step&) const = default;
};

struct Loop;
using Node = std::variant<Step, Loop>;
using Body = std::vector<Node>;

// Runs its body `count` times, its variable going 0, 1, ... count-1.
struct Loop {
  std::int64_t count = 0;
  Body body{};
  bool operator==(const Loop&) const;
};

struct ThreadBlock {
  int channel = 0;
  int send_peer = -1;
  int recv_peer = -1;
  Body body{};
  bool operator==(const ThreadBlock&) const = default;
};

struct RankProgram {
  int rank = 0;
  int scratch_blocks = 0;
  std::vector<ThreadBlock> thread_blocks;
  bool operator==(const RankProgram&) const = default;
};

struct Header {
  std::string name{};  // the algorithm's registered name, or the author's choice
  Collective collective = Collective::all_reduce;
  int ranks = 0;
  int root = 0;  // for collectives that have one, else 0
  Protocol protocol = Protocol::simple;
  int channels = 1;
  bool in_place = false;
  int chunks_per_block = 1;
  int max_step_count = 1;  // the largest Step::count of any rank: sizes the tiles everywhere
  int input_blocks = 1;    // of the largest rank; see blocks_of()
  int output_blocks = 1;
  std::uint64_t min_bytes = 0;  // the sizes (of the input or output, the larger) it serves
  std::uint64_t max_bytes = 0;  // 0 = no limit
  bool operator==(const Header&) const = default;
};

struct Plan {
  Header header;
  std::vector<RankProgram> programs;  // by rank
  bool operator==(const Plan&) const = default;
};

// How many blocks of `count` elements a rank's buffer has in this collective: all_gather has 1 in
// and `ranks` out; gather has `ranks` out at the root and 0 elsewhere. Scratch: the program says.
// For custom and point_to_point: the header says.
int input_blocks_of(const Header& header, int rank);
int output_blocks_of(const Header& header, int rank);

// Fills input_blocks and output_blocks for a collective that fixes them.
void set_blocks(Header& header);

// Which memory (buffer, chunk) is: equal for two locations exactly if they alias in this plan. The
// smaller of two aliasing buffers is renamed to its place in the larger one (input to output where
// they are equal).
struct Storage {
  Buffer buffer = Buffer::input;
  std::int64_t chunk = 0;
  bool operator==(const Storage&) const = default;
};
Storage storage_of(const Header& header, int rank, Buffer buffer, std::int64_t chunk);

}  // namespace unisono::plan
