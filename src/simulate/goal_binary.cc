#include <algorithm>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "base/wire.h"
#include "simulate/goal.h"

namespace unisono::simulate::goal {
namespace {

constexpr std::size_t header_bytes = 8 + 4 + 1 + 1;
constexpr std::size_t jump_bytes = 8 + 8;
constexpr std::size_t part_header_bytes = 4 + 4;
constexpr std::size_t node_bytes = 39;

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  Result<Schedule> read();

 private:
  Status read_part(std::uint32_t rank, std::size_t begin, std::size_t end, Schedule& schedule);
  Status read_node(std::size_t at, std::uint32_t number, std::uint32_t ranks);
  Status read_edges(std::size_t at, std::uint32_t from, bool at_start);
  Status check_roots(std::size_t at, std::uint32_t roots, const Rank& rank) const;

  // The caller has checked that `at` lies in the file.
  template <class T>
  T number(std::size_t at) const {
    return WireReader(as_bytes_of(bytes_.substr(at))).number<T>();
  }
  template <class... Parts>
  static Error wrong(std::size_t at, const Parts&... parts) {
    return misuse("GOAL binary, byte ", at, ": ", parts...);
  }

  std::string_view bytes_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> stated_;  // requirements, by operation
  std::vector<Requirement> requirements_;
  std::size_t edges_begin_ = 0;
  std::size_t edges_ = 0;  // in the part
};

Status Reader::read_edges(std::size_t at, std::uint32_t from, bool at_start) {
  const auto count = number<std::uint32_t>(at);
  const auto first = number<std::uint32_t>(at + 4);
  if (count == 0) return {};
  // In order and once: no edge is read twice, so the work stays within the file's size.
  if (first != requirements_.size() || count > edges_ - requirements_.size())
    return wrong(at, "node ", from, " has edges ", first, " to ", std::uint64_t{first} + count - 1,
                 "; the next are from ", requirements_.size(), " on, of ", edges_);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t edge = edges_begin_ + 4 * std::size_t{first + i};
    const auto to = number<std::uint32_t>(edge);
    if (to >= operations_.size())
      return wrong(edge, "an edge to node ", to, "; the rank has ", operations_.size());
    requirements_.push_back({from, to, at_start});
  }
  return {};
}

Status Reader::read_node(std::size_t at, std::uint32_t node, std::uint32_t ranks) {
  Operation& out = operations_[node];
  stated_[node] = number<std::uint32_t>(at);
  const auto kind = number<std::uint8_t>(at + 4);
  if (kind < 1 || kind > 3)
    return wrong(at + 4, "node ", node, " is of type ", kind,
                 "; it must be 1 (send), 2 (recv) or "
                 "3 (calc)");
  out.kind = static_cast<Kind>(kind);
  out.peer = number<std::uint32_t>(at + 5);
  out.size = number<std::uint64_t>(at + 9);
  out.tag = number<std::uint32_t>(at + 17);
  out.cpu = number<std::uint8_t>(at + 21);
  out.nic = number<std::uint8_t>(at + 22);
  if (out.size > max_size)
    return wrong(at + 9, "node ", node, " has the size ", out.size, "; it must be at most 2^46");
  if (out.kind == Kind::calc) {
    out.peer = out.tag = 0;
    return {};
  }
  const bool takes_any = out.kind == Kind::recv;
  const bool is_from_any = takes_any && out.peer == any;
  if (out.peer >= ranks && !is_from_any)
    return wrong(at + 5, "node ", node, " is a ", name(out.kind), " with rank ", out.peer,
                 "; ranks are 0 to ", ranks - 1);
  if (out.tag == any && !takes_any) return wrong(at + 17, "node ", node, " sends with any tag");
  return {};
}

Status Reader::check_roots(std::size_t at, std::uint32_t roots, const Rank& rank) const {
  const std::vector<std::uint32_t> counts = rank.requirement_counts();
  for (std::uint32_t node = 0; node < counts.size(); ++node)
    if (counts[node] != stated_[node])
      return wrong(at, "node ", node, " is said to wait for ", stated_[node], " others, but ",
                   counts[node], " edges lead to it");
  std::uint32_t seen = 0;
  for (std::uint32_t node = 0; node < counts.size(); ++node) {
    if (counts[node] > 0) continue;
    if (seen == roots ||
        number<std::uint32_t>(at + part_header_bytes + 4 * std::size_t{seen}) != node)
      return wrong(at, "node ", node,
                   " waits for nothing, but is not among the roots in its place");
    ++seen;
  }
  if (seen < roots) return wrong(at, roots, " roots, but only ", seen, " nodes wait for nothing");
  return {};
}

Status Reader::read_part(std::uint32_t number_of, std::size_t begin, std::size_t end,
                         Schedule& schedule) {
  const auto ranks = number<std::uint32_t>(8);
  if (end - begin < part_header_bytes)
    return wrong(begin, "rank ", number_of, " has ", end - begin, " bytes; it needs ",
                 part_header_bytes, " at least");
  const auto nodes = number<std::uint32_t>(begin);
  const auto roots = number<std::uint32_t>(begin + 4);
  const std::size_t needed =
      part_header_bytes + 4 * std::size_t{roots} + node_bytes * std::size_t{nodes};
  if (roots > nodes || needed > end - begin || (end - begin - needed) % 4 != 0)
    return wrong(begin, "rank ", number_of, " has ", nodes, " nodes and ", roots, " roots in ",
                 end - begin, " bytes, which do not fit");
  edges_begin_ = begin + needed;
  edges_ = (end - edges_begin_) / 4;
  operations_.assign(nodes, {});
  stated_.assign(nodes, 0);
  requirements_.clear();
  const std::size_t first = begin + part_header_bytes + 4 * std::size_t{roots};
  for (std::uint32_t node = 0; node < nodes; ++node)
    UNISONO_TRY(read_node(first + node_bytes * node, node, ranks));
  for (std::uint32_t node = 0; node < nodes; ++node) {
    UNISONO_TRY(read_edges(first + node_bytes * node + 23, node, false));
    UNISONO_TRY(read_edges(first + node_bytes * node + 31, node, true));
  }
  if (requirements_.size() != edges_)
    return wrong(edges_begin_, "rank ", number_of, " has ", edges_, " edges, of which nodes name ",
                 requirements_.size());
  UNISONO_ASSIGN(Rank rank, Rank::make(std::move(operations_), requirements_,
                                       str("GOAL binary, byte ", begin, ", rank ", number_of)));
  UNISONO_TRY(check_roots(begin, roots, rank));
  schedule.ranks.push_back(std::move(rank));
  return {};
}

Result<Schedule> Reader::read() {
  if (bytes_.size() < header_bytes)
    return wrong(bytes_.size(), "the file ends in its header of ", header_bytes, " bytes");
  if (number<std::uint64_t>(0) != magic)
    return wrong(0, "the magic is ", number<std::uint64_t>(0), "; it must be ", magic);
  const auto ranks = number<std::uint32_t>(8);
  if (ranks < 1 || ranks > max_ranks)
    return wrong(8, ranks, " ranks; there may be 1 to ", max_ranks);
  std::size_t next = header_bytes + jump_bytes * std::size_t{ranks};
  if (bytes_.size() < next)
    return wrong(bytes_.size(), "the file ends in the table of ", ranks, " ranks");
  Schedule schedule;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::size_t at = header_bytes + jump_bytes * std::size_t{rank};
    const auto begin = number<std::uint64_t>(at);
    const auto end = number<std::uint64_t>(at + 8);
    const std::size_t behind_magic = bytes_.size() - 8;
    if (begin < next - 8 || end < begin || end > behind_magic)
      return wrong(at, "rank ", rank, " lies from ", begin, " to ", end, "; it must lie from ",
                   next - 8, " to ", behind_magic, " at most");
    UNISONO_TRY(read_part(rank, begin + 8, end + 8, schedule));
    next = end + 8;
  }
  return schedule;
}

void write_part(WireWriter& out, const Rank& rank) {
  const std::span<const Operation> operations = rank.operations();
  const std::vector<std::uint32_t> counts = rank.requirement_counts();
  out.number(static_cast<std::uint32_t>(operations.size()));
  out.number(static_cast<std::uint32_t>(std::count(counts.begin(), counts.end(), 0u)));
  for (std::uint32_t i = 0; i < counts.size(); ++i)
    if (counts[i] == 0) out.number(i);
  std::uint32_t edges = 0;
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    const Operation& one = operations[i];
    out.number(counts[i]);
    out.number(static_cast<std::uint8_t>(one.kind));
    out.number(one.peer);
    out.number(one.size);
    out.number(one.tag);
    out.number(one.cpu);
    out.number(one.nic);
    for (const auto& waiters : {rank.after_end(i), rank.after_start(i)}) {
      out.number(static_cast<std::uint32_t>(waiters.size()));
      out.number(edges);
      edges += static_cast<std::uint32_t>(waiters.size());
    }
  }
  for (std::uint32_t i = 0; i < operations.size(); ++i)
    for (const auto& waiters : {rank.after_end(i), rank.after_start(i)})
      for (const std::uint32_t to : waiters) out.number(to);
}

}  // namespace

Result<Schedule> read_binary(std::string_view bytes) { return Reader(bytes).read(); }

std::string write_binary(const Schedule& schedule) {
  std::uint8_t cpu = 0;
  std::uint8_t nic = 0;
  for (const Rank& rank : schedule.ranks)
    for (const Operation& one : rank.operations()) {
      cpu = std::max(cpu, one.cpu);
      nic = std::max(nic, one.nic);
    }
  WireWriter parts;
  std::vector<std::uint64_t> ends;
  const std::size_t first = header_bytes + jump_bytes * schedule.ranks.size() - 8;
  for (const Rank& rank : schedule.ranks) {
    write_part(parts, rank);
    ends.push_back(first + parts.bytes().size());
  }
  WireWriter out;
  out.number(magic);
  out.number(static_cast<std::uint32_t>(schedule.ranks.size()));
  out.number(cpu);
  out.number(nic);
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    out.number(rank == 0 ? std::uint64_t{first} : ends[rank - 1]);
    out.number(ends[rank]);
  }
  out.raw(parts.bytes());
  return std::string(as_text(out.bytes()));
}

}  // namespace unisono::simulate::goal
