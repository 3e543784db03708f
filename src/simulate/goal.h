// GOAL schedules (Hoefler et al.; ATLAHS): for each rank a graph of sends, receives and
// calculations, as LogGOPSim reads them.
//
// Text:
//   num_ranks 2
//   rank 0 {
//   l1: send 10b to 1 tag 3 cpu 0 nic 0
//   l2: calc 500
//   l2 requires l1       (after l1 has ended)
//   l3 irequires l1      (after l1 has begun)
//   }
// Labels, tag, cpu and nic may be left out; "from -1" and "tag -1" of a receive take any. Comments
// are as in C.
//
// Binary, little-endian: magic 4223 (u64), ranks (u32), largest cpu and nic (u8 each), for each
// rank the begin and end of its part (u64 each, from behind the magic). A part: number of nodes and
// of roots (u32 each), the roots (u32 each), nodes of 39 bytes (number of requirements u32, type
// u8, peer u32, size u64, tag u32, cpu u8, nic u8, how many wait for its end u32 and where these
// begin among the edges u32, the same for its start), edges (u32 each: a node).
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::simulate::goal {

inline constexpr std::uint64_t magic = 4223;
inline constexpr std::uint32_t any = UINT32_MAX;  // source or tag of a receive
inline constexpr int max_ranks = 1 << 20;
// The largest calculation in ns, and the largest message in bytes.
inline constexpr std::uint64_t max_size = std::uint64_t{1} << 46;

enum class Kind : std::uint8_t { send = 1, recv = 2, calc = 3 };
std::string_view name(Kind kind);

struct Operation {
  std::uint64_t size = 0;  // bytes; of a calculation ns
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;
  Kind kind = Kind::calc;
  std::uint8_t cpu = 0, nic = 0;
  bool operator==(const Operation&) const = default;
};

// `to` waits for `from`: until it has ended, or with `at_start` until it has begun.
struct Requirement {
  std::uint32_t from = 0, to = 0;
  bool at_start = false;
  bool operator==(const Requirement&) const = default;
};

// One rank's graph, its edges sorted by what others wait for.
class Rank {
 public:
  Rank() = default;
  // The requirements in any order; what waits for one operation keeps its order. A cycle is misuse
  // that shows it; `where` begins the message.
  static Result<Rank> make(std::vector<Operation> operations,
                           const std::vector<Requirement>& requirements, std::string_view where);

  std::span<const Operation> operations() const { return operations_; }
  // Who waits for its end, or for its start.
  std::span<const std::uint32_t> after_end(std::uint32_t operation) const {
    return waiters(2 * std::size_t{operation});
  }
  std::span<const std::uint32_t> after_start(std::uint32_t operation) const {
    return waiters(2 * std::size_t{operation} + 1);
  }
  // For each operation, how many others it waits for.
  std::vector<std::uint32_t> requirement_counts() const;
  bool operator==(const Rank&) const = default;

 private:
  std::span<const std::uint32_t> waiters(std::size_t list) const {
    return std::span(edges_).subspan(first_[list], first_[list + 1] - first_[list]);
  }
  Status find_cycle(std::string_view where) const;

  std::vector<Operation> operations_;
  std::vector<std::uint32_t> first_;  // by operation, end and start; one more at the end
  std::vector<std::uint32_t> edges_;
};

struct Schedule {
  std::vector<Rank> ranks;
  bool operator==(const Schedule&) const = default;
};

// "send of 10 bytes to 1 with tag 3".
std::string describe(const Operation& operation);

// Misuse with line and column.
Result<Schedule> read_text(std::string_view text);
// Misuse with the byte's offset.
Result<Schedule> read_binary(std::string_view bytes);
// By its first bytes.
Result<Schedule> read(std::string_view contents);

std::string write_text(const Schedule& schedule);
std::string write_binary(const Schedule& schedule);

// One rank as text, from "rank r {" on; for writers that never hold all ranks.
void append_text(std::string& out, int number, const Rank& rank);

}  // namespace unisono::simulate::goal
