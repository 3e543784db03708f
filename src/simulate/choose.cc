#include "simulate/choose.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

using Verdict = Candidate::Verdict;

// The messages of all ranks.
double messages_of(const Machine& machine, const CollectiveCall& call,
                   const algorithm::Cost& cost) {
  const double slot = static_cast<double>(
      machine.protocols[static_cast<std::size_t>(call.request.protocol)].slot_bytes);
  const auto messages = static_cast<double>(cost.messages_of_all);
  const double sent = cost.bytes_sent * call.request.placement.ranks();
  return std::max(messages * call.request.channels, sent / slot);
}

// What can serve, in the order of stated costs.
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
      if (options.runs && !options.runs(*entry, call.request)) {
        if (why.empty()) why = "the engine cannot run it: it has too few slots or thread blocks";
        continue;
      }
      const algorithm::Cost cost = entry->cost(call.request, block_bytes);
      const double messages = messages_of(machine, call, cost);
      // One node is simulated where all nodes' programs are alike.
      const bool is_alike = entry->symmetry(call.request) != algorithm::Symmetry::none;
      const double simulated = messages / (is_alike ? call.request.placement.nodes() : 1);
      const bool is_small = simulated <= static_cast<double>(options.max_messages);
      found.push_back({.entry = entry,
                       .protocol = protocol,
                       .messages = messages,
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
  std::ranges::sort(found, {}, place_of);
  return found;
}

Status check_progress(const ChoiceOptions& options) {
  if (options.progress != nullptr && options.progress->is_stopped())
    return misuse("the simulation was stopped");
  return {};
}

Result<ExecutorResult> run(const Machine& machine, CollectiveCall call, const Candidate& one,
                           const CollectiveOptions& options) {
  call.request.protocol = one.protocol;
  UNISONO_ASSIGN(CollectiveResult result, simulate_collective(machine, *one.entry, call, options));
  return std::move(result.run);
}

Status simulate_all(const Machine& machine, const CollectiveCall& call,
                    const ChoiceOptions& options, std::vector<Candidate>& found) {
  CollectiveOptions run_options;
  for (Candidate& one : found) {
    if (one.verdict == Verdict::too_large) continue;
    UNISONO_TRY(check_progress(options));
    UNISONO_ASSIGN(const ExecutorResult result, run(machine, call, one, run_options));
    if (result.is_cut) {
      one.verdict = Verdict::slower;
      one.time_us = to_us(run_options.last_time);
    } else {
      one.time_us = to_us(result.finished);
      const auto as_good =
          static_cast<Time>(static_cast<double>(result.finished) * options.as_good);
      run_options.last_time = std::min(run_options.last_time, as_good);
    }
  }
  return {};
}

// Among plans as good in log_gops, the best of which is the first.
Status ask_flows(const Machine& machine, const CollectiveCall& call, const ChoiceOptions& options,
                 std::span<Candidate> as_good) {
  const auto is_large = [&](const Candidate& one) {
    return one.messages > static_cast<double>(options.max_messages_of_flows);
  };
  if (as_good.size() < 2 || std::ranges::any_of(as_good, is_large)) return {};
  for (Candidate& one : as_good) {
    UNISONO_TRY(check_progress(options));
    UNISONO_ASSIGN(const ExecutorResult result,
                   run(machine, call, one, {.model = NetworkModel::flows}));
    one.flows_us = to_us(result.finished);
  }
  const double best_us = as_good.front().time_us;
  const double best_flows_us = std::ranges::min(as_good, {}, &Candidate::flows_us).flows_us;
  std::ranges::stable_sort(as_good, {}, [&](const Candidate& one) {
    return std::max(one.time_us / best_us, one.flows_us / best_flows_us);
  });
  return {};
}

}  // namespace

Result<std::vector<Candidate>> choose_plan(const Machine& machine, const CollectiveCall& call,
                                           const ChoiceOptions& options) {
  UNISONO_ASSIGN(std::vector<Candidate> found, candidates_of(machine, call, options));
  UNISONO_TRY(simulate_all(machine, call, options, found));
  const auto place_of = [](const Candidate& one) {
    const bool is_large = one.verdict == Verdict::too_large;
    return std::tuple(one.verdict, is_large ? one.stated_us : one.time_us, one.stated_us,
                      one.protocol, one.entry->name);
  };
  std::ranges::sort(found, {}, place_of);
  const double limit_us = found.front().time_us * options.as_good;
  const auto end = std::ranges::find_if(found, [&](const Candidate& one) {
    return one.verdict != Verdict::simulated || one.time_us > limit_us;
  });
  UNISONO_TRY(ask_flows(machine, call, options, {found.begin(), end}));
  return found;
}

}  // namespace unisono::simulate
