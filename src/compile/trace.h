// What a program of the language did, in the order in which it did it: the chunk graph.
//
// A step costs 32 bytes, and nothing is looked up by name: programs of millions of steps are
// traced in tenths of seconds. What can be told at once is refused at once: an index outside of its
// buffer, a chunk that holds nothing, a reference to a chunk that was overwritten since.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/layout.h"
#include "plan/plan.h"
#include "verify/verify.h"

namespace unisono::compile {

// The bound for programs that loop for ever, unless they set a lower one.
inline constexpr std::size_t max_operations = std::size_t{1} << 24;
inline constexpr int max_ranks = 1 << 18;
inline constexpr int max_channel = 63;
inline constexpr int max_parallel = 64;

inline constexpr int max_thread_block = 127;

enum class Kind : std::uint8_t {
  copy,         // destination = source
  reduce,       // destination = destination (+) source
  put,          // destination = source in another rank's memory, there once it has waited
  read_reduce,  // destination = destination (+) source, read from another rank's memory
  signal,       // source_rank signals destination_rank: its earlier puts there have arrived
  wait,         // destination_rank takes that token
};
// Whether programs can be of a collective: chunks of one size are their matter.
bool has_programs(Collective collective);
bool moves_data(Kind kind);    // not signal and wait, whose operations name no cells
bool is_one_sided(Kind kind);  // put, read_reduce, signal, wait
bool adds(Kind kind);          // reduce, read_reduce

// `count` chunks from `source` on go to those from `destination` on.
struct Operation {
  std::int32_t source = 0;  // cells
  std::int32_t destination = 0;
  std::int32_t source_rank = 0;
  std::int32_t destination_rank = 0;
  std::int32_t count = 1;
  std::int32_t line = 0;  // where the user wrote it
  std::uint8_t channel = 0;
  std::uint8_t parallel = 1;  // instances that it is divided among
  // Thread blocks at its two ends that the program asks for, counted from 1; 0: the compiler's
  // choice.
  std::uint8_t source_block = 0;
  std::uint8_t destination_block = 0;
  Kind kind = Kind::copy;
};

// Chunks as they were when the program took hold of them.
struct Chunk {
  std::int32_t cell = 0;
  std::int32_t count = 1;
  std::int32_t rank = 0;
  std::int32_t taken = 0;  // operations traced before
};

// What a program is: its collective, and how it is cut.
struct Program {
  plan::Header header;  // name, collective, ranks, root, chunks_per_block, in_place, blocks
  int nodes = 1;
};

using verify::Conditions;

class Trace {
 public:
  // Misuse if the program's numbers are impossible.
  static Result<Trace> start(const Program& program);
  // Before the first step; a custom collective without holds nothing and asks for nothing.
  Status set_conditions(Conditions conditions);

  const Program& program() const { return program_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Operation>& operations() const { return operations_; }
  const std::optional<Conditions>& conditions() const { return conditions_; }
  bool is_given(std::int32_t cell) const;

  // Places in the user's source. 0 is the program as a whole, where it is known.
  std::int32_t add_line(std::string file, int line);
  void set_home(std::string file, int line) { lines_[0] = {std::move(file), line}; }
  // "ring.py:12: ", or nothing for an unknown place.
  std::string where(std::int32_t line) const;
  // "at ring.py:12".
  std::string at(std::int32_t line) const;

  // At most so many steps, and never more than max_operations.
  void set_most_operations(std::size_t most) {
    most_operations_ = most < max_operations ? most : max_operations;
  }
  Status add_scratch(std::string name, std::int64_t chunks, std::int32_t line = 0);
  Result<Chunk> take(int rank, int buffer, std::int64_t index, std::int64_t count,
                     std::int32_t line);
  // A range of a rank's buffer to write to: need not hold anything.
  Result<Chunk> place(int rank, int buffer, std::int64_t index, std::int64_t count,
                      std::int32_t line) const;
  // Moves or adds `source` to `destination`, which is of as many chunks; the chunks as they are
  // after it. A reduction's destination must hold data. Not signal and wait.
  Result<Chunk> add(Kind kind, const Chunk& source, const Chunk& destination, int channel,
                    std::int32_t line);
  // Whether nothing has overwritten the chunk since it was taken, and what was put there has
  // arrived; misuse says what is wrong.
  Status check_fresh(const Chunk& chunk, std::int32_t line) const;
  // A token from rank to rank, and its taking: what `from` put before the signal is there after the
  // wait. A wait that no signal comes before is misuse.
  Status signal(int from, int to, int channel, std::int32_t line);
  Status wait(int to, int from, int channel, std::int32_t line);
  // Whether every signal is waited for.
  Status check_signals() const;
  bool has_one_sided() const { return !tokens_.empty() || has_read_reduce_; }

  // How following steps are divided (fragments): instances, 1 to max_parallel, and the channel of
  // steps that name none.
  Status set_parallel(int instances, std::int32_t line);
  int parallel() const { return parallel_; }
  Status set_channel(int channel, std::int32_t line);
  int channel() const { return channel_; }
  // Thread blocks of following steps, at the rank that sends and at the one that receives; none:
  // the compiler's choice.
  using ThreadBlocks = std::pair<std::optional<int>, std::optional<int>>;
  Status set_thread_blocks(ThreadBlocks blocks, std::int32_t line);
  ThreadBlocks thread_blocks() const { return thread_blocks_; }

 private:
  static constexpr std::int32_t untouched = -2;
  static constexpr std::int32_t given = -1;

  Trace(const Program& program);

  // What went from rank to rank on a channel.
  using Way = std::tuple<int, int, int>;
  struct Tokens {
    std::int64_t signals = 0;
    std::int64_t waits = 0;
    std::int32_t line = 0;  // of the last signal
  };
  // A chunk that was put: it is there when `signals` of its way have been waited for.
  struct InFlight {
    Way way;
    std::int64_t signals = 0;
    std::int32_t line = 0;
  };
  // "" unless the collective gives the buffer to the root alone.
  std::string only_the_root_has(int buffer) const;
  std::string why_not_given(int buffer) const;
  int channel_of(int channel) const { return channel < 0 ? channel_ : channel; }
  Status check_ranks(int from, int to, std::int32_t line) const;
  Status check_room(int channel, std::int32_t line) const;
  const InFlight* in_flight(std::int32_t cell) const;
  Status check_arrived(const Chunk& chunk, std::int32_t line) const;
  Operation operation(Kind kind, int channel, std::int32_t line) const;

  Program program_;
  Layout layout_;
  std::optional<Conditions> conditions_;
  std::vector<Operation> operations_;
  std::vector<std::int32_t> written_;  // by cell: the last operation, or one of the above
  struct Line {
    std::string file;
    int line;
  };
  std::vector<Line> lines_;
  std::size_t most_operations_ = max_operations;
  int parallel_ = 1;
  int channel_ = 0;
  ThreadBlocks thread_blocks_;
  std::map<Way, Tokens> tokens_;
  std::unordered_map<std::int32_t, InFlight> in_flight_;  // by cell
  bool has_read_reduce_ = false;
};

}  // namespace unisono::compile
