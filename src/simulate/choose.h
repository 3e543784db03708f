// Which plan serves a call best on a machine: the simulator is asked, not the stated costs.
#pragma once

#include <unisono/result.h>

#include <vector>

#include "simulate/collective.h"

namespace unisono::simulate {

// What is known of a plan that could serve.
struct Candidate {
  enum class Verdict : std::uint8_t {
    simulated,  // to its end
    slower,     // cut once it took longer than another one
    too_large,  // more messages than ChoiceOptions::max_messages
  };
  const algorithm::Entry* entry = nullptr;
  Protocol protocol = Protocol::simple;
  double stated_us = 0;  // closed_form_us()
  double time_us = 0;    // simulated; of a slower one a lower bound
  Verdict verdict = Verdict::too_large;
};

struct ChoiceOptions {
  std::vector<Protocol> protocols;  // none: the request's
  // A candidate with more messages is not simulated: so many take about half a second of one core.
  std::int64_t max_messages = 2'000'000;
  const Progress* progress = nullptr;  // says whether to stop, before each candidate
};

// All plans that can serve the call, the best one first: simulated ones by time, then slower ones,
// then those too large to simulate, by stated cost. Never empty: misuse if nothing can serve.
//
// Each candidate is simulated in log_gops, with the network to itself, in the order of the stated
// costs, and cut once it takes longer than the best before it. Flows would take minutes for
// thousands of messages at once.
Result<std::vector<Candidate>> choose_plan(const Machine& machine, const CollectiveCall& call,
                                           const ChoiceOptions& options);

}  // namespace unisono::simulate
