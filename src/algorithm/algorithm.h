// The built-in algorithms and their registry.
//
// An algorithm is rank-local: it writes the program of one rank, in time and memory that grow
// with that rank's own steps, because a communicator of 100,000 ranks never holds the others'.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "topo/placement.h"

namespace unisono::algorithm {

// For which communicator and call a plan is wanted. The same on every rank.
struct Request {
  Collective collective = Collective::all_reduce;
  topo::Placement placement = topo::Placement::single_node(1);
  int root = 0;
  bool in_place = false;
  Protocol protocol = Protocol::simple;
  int channels = 1;
};

// What a plan costs, as its algorithm's file states and a test holds against the plan.
struct Cost {
  // Down a chain, executors cut a message into tiles of no fewer bytes: inside a node, and between
  // nodes.
  static constexpr double least_tile_bytes = 16 << 10;
  static constexpr double least_tile_bytes_inter_node = 32 << 10;

  // Messages on the longest chain, each of which can start only when the one before has arrived;
  // the number of alphas. Of these at most `steps_inter_node` cross nodes.
  std::int64_t steps = 0;
  std::int64_t steps_inter_node = 0;
  // By levels that they leave: the steps of `steps_inter_node` on the chain whose messages take
  // longest by it, where the placement has levels. The others may leave any.
  std::array<std::int64_t, topo::max_levels + 1> steps_leaving{};
  // Messages that a rank sends, or takes, at most, and those of them between nodes, where these are
  // many more than the steps: each of them has its overhead. Else 0, or about the steps.
  std::int64_t messages = 0;
  std::int64_t messages_inter_node = 0;
  // Messages of all ranks together, on one channel. Blocks that are not contiguous and need several
  // messages count as one.
  std::int64_t messages_of_all = 0;
  // Those of them between nodes.
  std::int64_t messages_of_all_inter_node = 0;
  // Bytes sent by the rank that sends most, and by the rank that sends most between nodes.
  double bytes_sent = 0;
  double bytes_sent_inter_node = 0;
  // Half the bytes that go from rank to rank down a chain, one hop after another, before the last
  // rank gets its first tile. No rank sends them all. A call alone waits for all of them, and of
  // calls that follow each other only the first does.
  double bytes_filling = 0;
  // The same of edges between nodes after the first.
  double bytes_filling_inter_node = 0;
  // Bytes that a rank copies so that the blocks of a message lie together, out of place. Beside
  // these it may copy a block of its own.
  double bytes_copied = 0;
  // Bytes of results of reductions computed by the rank that computes most.
  double bytes_reduced = 0;
  // Otherwise these are upper bounds (nodes of unequal size).
  bool exact = true;
};

// How much longer the messages of a chain take because they leave units of the levels.
double longer_us(const Cost& cost, const topo::Levels& levels);

// Which renumberings of the ranks carry an algorithm's programs into each other, wherever every
// node holds as many ranks and they fill one node after another: with a renumbering g, the program
// of g(r) is that of r, its peers renumbered, and so its blocks where every rank has one. Chunks
// and their loops may be numbered and written otherwise; how many, and in which order, may not.
enum class Symmetry : std::uint8_t {
  none,
  rotation,      // by whole nodes: r + i n modulo the ranks, for n ranks a node
  exclusive_or,  // r ^ i n, of 2^k ranks
};

struct Entry {
  std::string_view name;  // "ring"
  Collective collective = Collective::all_reduce;
  std::string_view summary;     // one sentence
  std::string_view source;      // paper section or author
  std::string_view constraint;  // "any number of ranks", or what it needs

  // Misuse, saying which value is wrong and what would be right, if it cannot serve the request.
  Status (*supports)(const Request& request);
  // chunks_per_block and what else the header says; only for supported requests.
  plan::Header (*header)(const Request& request);
  plan::RankProgram (*program)(const Request& request, int rank);
  // For blocks of `block_bytes` (the collective's count times the element's size), divisible
  // by the chunks of the plan.
  Cost (*cost)(const Request& request, double block_bytes);
  Symmetry (*symmetry)(const Request& request) = [](const Request&) { return Symmetry::none; };
  // Whether ranks pass on what they take in the step that takes it, rather than read it again.
  bool passes_on = false;

  std::string plan_name() const;  // "ring_all_reduce"
};

// All entries, grouped by collective; within one, in the order of files. An entry is known by its
// address.
std::span<const std::reference_wrapper<const Entry>> entries();
std::vector<const Entry*> entries_for(Collective collective);
// By algorithm name and collective, or by plan name. Unknown: misuse with the near names.
Result<const Entry*> find(Collective collective, std::string_view name);
Result<const Entry*> find_plan(std::string_view plan_name);

// Misuse, saying which value is wrong and what would be right, if the entry cannot serve it: what
// all requests must be, then entry.supports.
Status check_request(const Entry& entry, const Request& request);

// One rank's program and header, checked against the request; and the plan of all ranks, for the
// verifier, the drawings and the tests.
Result<plan::Header> make_header(const Entry& entry, const Request& request);
Result<plan::RankProgram> make_program(const Entry& entry, const Request& request, int rank);
Result<plan::Plan> make_plan(const Entry& entry, const Request& request);

}  // namespace unisono::algorithm
