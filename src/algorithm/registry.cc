#include "algorithm/algorithm.h"

#include <algorithm>

#include "algorithm/algorithms.h"
#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "plan/check.h"

namespace unisono::algorithm {
namespace {

// By collective, in the order of files.
constexpr std::reference_wrapper<const Entry> all[] = {
    ring_all_reduce,
    bidirectional_ring_all_reduce,
    tree_all_reduce,
    recursive_doubling_all_reduce,
    rabenseifner_all_reduce,
    all_pairs_one_shot_all_reduce,
    all_pairs_two_shot_all_reduce,
    hierarchical_ring_all_reduce,
    hierarchical_ring_direct_all_reduce,
    hierarchical_recursive_all_reduce,
    hierarchical_recursive_direct_all_reduce,
    hierarchical_pat_all_reduce,
    ring_all_gather,
    bidirectional_ring_all_gather,
    recursive_doubling_all_gather_near,
    recursive_doubling_all_gather_far,
    bruck_all_gather,
    pat_all_gather,
    pat8_all_gather,
    direct_all_gather,
    hierarchical_ring_all_gather,
    hierarchical_ring_direct_all_gather,
    hierarchical_recursive_all_gather,
    hierarchical_recursive_direct_all_gather,
    hierarchical_bruck_all_gather,
    hierarchical_pat_all_gather,
    ring_reduce_scatter,
    bidirectional_ring_reduce_scatter,
    recursive_halving_reduce_scatter,
    pat_reduce_scatter,
    pat8_reduce_scatter,
    direct_reduce_scatter,
    hierarchical_ring_reduce_scatter,
    hierarchical_ring_direct_reduce_scatter,
    hierarchical_recursive_reduce_scatter,
    hierarchical_recursive_direct_reduce_scatter,
    hierarchical_pat_reduce_scatter,
    ring_broadcast,
    binomial_broadcast,
    knomial_broadcast,
    two_shot_broadcast,
    ring_reduce,
    binomial_reduce,
    knomial_reduce,
    two_shot_reduce,
    binomial_gather,
    knomial_gather,
    binomial_scatter,
    knomial_scatter,
    direct_all_to_all,
    pairwise_all_to_all,
    bruck_all_to_all,
    direct_all_to_all_v,
    pairwise_all_to_all_v,
    dissemination_barrier,
};

std::string unknown(std::string_view wanted, const std::vector<std::string>& known) {
  return str("there is no algorithm '", wanted, "'", name_hint(wanted, known));
}

}  // namespace

Status check_request(const Entry& entry, const Request& request) {
  const std::string name_of_plan = entry.plan_name();
  if (request.collective != entry.collective)
    return misuse(name_of_plan, " cannot run ", name(request.collective),
                  "; it is an algorithm for ", name(entry.collective));
  const int ranks = request.placement.ranks();
  if (has_root(entry.collective) && (request.root < 0 || request.root >= ranks))
    return misuse(name_of_plan, ": root ", request.root, " is not a rank; ranks are 0 to ",
                  ranks - 1);
  // Before anything is written, which takes as long as there are channels.
  const int most = plan::format_limits().max_channels;
  if (request.channels < 1 || request.channels > most)
    return misuse(name_of_plan, ": channels is ", request.channels, "; it must be 1 to ", most);
  return entry.supports(request);
}

namespace {

plan::Header named_header(const Entry& entry, const Request& request) {
  plan::Header header = entry.header(request);
  header.name = entry.plan_name();
  return header;
}

}  // namespace

std::string Entry::plan_name() const { return str(name, "_", unisono::name(collective)); }

std::span<const std::reference_wrapper<const Entry>> entries() { return all; }

std::vector<const Entry*> entries_for(Collective collective) {
  std::vector<const Entry*> result;
  for (const Entry& entry : entries())
    if (entry.collective == collective) result.push_back(&entry);
  return result;
}

Result<const Entry*> find(Collective collective, std::string_view name) {
  std::vector<std::string> known;
  for (const Entry* entry : entries_for(collective)) {
    if (entry->name == name || entry->plan_name() == name) return entry;
    known.emplace_back(entry->name);
  }
  std::string message = unknown(name, known);
  append(message, str(" (for ", unisono::name(collective), ")"));
  return misuse(message);
}

Result<const Entry*> find_plan(std::string_view plan_name) {
  std::vector<std::string> known;
  for (const Entry& entry : entries()) {
    known.push_back(entry.plan_name());
    if (known.back() == plan_name) return &entry;
  }
  return misuse(unknown(plan_name, known));
}

Result<plan::Header> make_header(const Entry& entry, const Request& request) {
  UNISONO_TRY(check_request(entry, request));
  return named_header(entry, request);
}

Result<plan::RankProgram> make_program(const Entry& entry, const Request& request, int rank) {
  UNISONO_TRY(check_request(entry, request));
  if (rank < 0 || rank >= request.placement.ranks())
    return misuse(entry.plan_name(), ": a program for rank ", rank, "; ranks are 0 to ",
                  request.placement.ranks() - 1);
  plan::RankProgram program = entry.program(request, rank);
  UNISONO_TRY(plan::check(named_header(entry, request), program, plan::format_limits()));
  return program;
}

Result<plan::Plan> make_plan(const Entry& entry, const Request& request) {
  UNISONO_TRY(check_request(entry, request));
  plan::Plan plan;
  plan.header = named_header(entry, request);
  for (int rank = 0; rank < request.placement.ranks(); ++rank)
    plan.programs.push_back(entry.program(request, rank));
  UNISONO_TRY(plan::check(plan, plan::format_limits()));
  return plan;
}

}  // namespace unisono::algorithm
