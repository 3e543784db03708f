#include "simulate/choose.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

using Verdict = Candidate::Verdict;

// Messages that a simulation goes through: of one node where all nodes' programs are alike.
double messages_of(const Machine& machine, const CollectiveCall& call,
                   const algorithm::Entry& entry, const algorithm::Cost& cost) {
  const topo::Placement& placement = call.request.placement;
  const double alike =
      entry.symmetry(call.request) == algorithm::Symmetry::none ? 1 : placement.nodes();
  const double slot = static_cast<double>(
      machine.protocols[static_cast<std::size_t>(call.request.protocol)].slot_bytes);
  const auto messages = static_cast<double>(cost.messages_of_all);
  const double channels = call.request.channels;
  const double sent = cost.bytes_sent * placement.ranks();
  return std::max(messages * channels, sent / slot) / alike;
}

// Of what can serve, in the order of stated costs.
Result<std::vector<Candidate>> candidates_of(const Machine& machine, CollectiveCall call,
                                             const ChoiceOptions& options) {
  std::vector<Protocol> protocols = options.protocols;
  if (protocols.empty()) protocols.push_back(call.request.protocol);
  const double block_bytes =
      static_cast<double>(call.count) * static_cast<double>(size_bytes(call.type));
  std::vector<Candidate> found;
  std::string why;
  for (const Protocol protocol : protocols) {
    call.request.protocol = protocol;
    for (const algorithm::Entry* entry : algorithm::entries_for(call.request.collective)) {
      const Status able = algorithm::check_request(*entry, call.request);
      if (!able.ok()) {
        if (why.empty()) why = able.error().message;
        continue;
      }
      const algorithm::Cost cost = entry->cost(call.request, block_bytes);
      const bool is_small =
          messages_of(machine, call, *entry, cost) <= static_cast<double>(options.max_messages);
      found.push_back({.entry = entry,
                       .protocol = protocol,
                       .stated_us = closed_form_us(machine, call.request, cost),
                       .verdict = is_small ? Verdict::simulated : Verdict::too_large});
    }
  }
  if (found.empty())
    return misuse("no algorithm supports ", name(call.request.collective), " over ",
                  call.request.placement.ranks(), " ranks: ", why);
  const auto place_of = [](const Candidate& one) {
    return std::tuple(one.stated_us, one.protocol, one.entry->name);
  };
  std::sort(found.begin(), found.end(),
            [&](const Candidate& a, const Candidate& b) { return place_of(a) < place_of(b); });
  return found;
}

}  // namespace

Result<std::vector<Candidate>> choose_plan(const Machine& machine, const CollectiveCall& call,
                                           const ChoiceOptions& options) {
  UNISONO_ASSIGN(std::vector<Candidate> found, candidates_of(machine, call, options));
  CollectiveOptions run;
  CollectiveCall asked = call;
  for (Candidate& one : found) {
    if (one.verdict == Verdict::too_large) continue;
    if (options.progress != nullptr && options.progress->is_stopped())
      return misuse("the simulation was stopped");
    asked.request.protocol = one.protocol;
    UNISONO_ASSIGN(const CollectiveResult result,
                   simulate_collective(machine, *one.entry, asked, run));
    if (result.run.is_cut) {
      one.verdict = Verdict::slower;
      one.time_us = to_us(run.last_time);
    } else {
      one.time_us = to_us(result.run.finished);
      run.last_time = std::min(run.last_time, result.run.finished);
    }
  }
  const auto place_of = [](const Candidate& one) {
    const bool is_large = one.verdict == Verdict::too_large;
    return std::tuple(one.verdict, is_large ? one.stated_us : one.time_us, one.stated_us,
                      one.protocol, one.entry->name);
  };
  std::sort(found.begin(), found.end(),
            [&](const Candidate& a, const Candidate& b) { return place_of(a) < place_of(b); });
  return found;
}

}  // namespace unisono::simulate
