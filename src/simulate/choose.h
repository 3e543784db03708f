// Which plan serves a call best on a machine: the simulator is asked, not the stated costs.
#pragma once

#include <unisono/result.h>

#include <functional>
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
  double messages = 0;   // of all ranks
  double stated_us = 0;  // closed_form_us()
  double time_us = 0;    // simulated; of a slower one a lower bound
  double flows_us = 0;   // simulated in flows; 0: there was nothing to decide
  Verdict verdict = Verdict::too_large;
};

struct ChoiceOptions {
  std::vector<Protocol> protocols;  // none: the request's
  // Whether the engine that is to run the plan can; none: any plan will do.
  std::function<bool(const algorithm::Entry&, const algorithm::Request&)> runs;
  // A candidate with more messages is not simulated: so many take about half a second of one core.
  std::int64_t max_messages = 2'000'000;
  // Plans that take at most so many times as long as the best are as good, and compared in flows...
  double as_good = 1.1;
  // ... if none of them has more messages: so many at once take about 0.3 seconds there.
  std::int64_t max_messages_of_flows = 4'000;
  const Progress* progress = nullptr;  // says whether to stop, before each candidate
};

// All plans that can serve the call, the best one first: simulated ones by time, then slower ones,
// then those too large to simulate, by stated cost. Never empty: misuse if nothing can serve.
//
// Each candidate is simulated in log_gops, with the network to itself, in the order of the stated
// costs, and cut once it takes longer than `as_good` times the best before it. Flows would take
// minutes for thousands of messages at once; measurements favour either model on some machine
// (docs/how-to/simulate.md). So flows decides among plans that are as good in log_gops: the first
// is the one whose time is the least multiple of the best in the model that likes it least.
Result<std::vector<Candidate>> choose_plan(const Machine& machine, const CollectiveCall& call,
                                           const ChoiceOptions& options);

}  // namespace unisono::simulate
