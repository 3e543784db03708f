// How long it takes to prove the built-in plans.
//
//   verify_bench [name=...] [ranks=LOW..HIGH] [also=100,128]
//
// Every entry, in place and out of place, on one node and on nodes of 4 (where it makes another
// plan), on one core, in CPU seconds. Prints a line for each entry, and every failure.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "verify/verify.h"

namespace {

using namespace unisono;

// Of this process, so that what else the machine does is not counted.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Totals {
  int plans = 0;
  int failures = 0;
  std::int64_t steps = 0;
  double make_seconds = 0;
  double verify_seconds = 0;
  double slowest_seconds = 0;
  std::string slowest;

  void add(const Totals& other) {
    plans += other.plans;
    failures += other.failures;
    steps += other.steps;
    make_seconds += other.make_seconds;
    verify_seconds += other.verify_seconds;
    if (other.slowest_seconds > slowest_seconds) {
      slowest_seconds = other.slowest_seconds;
      slowest = other.slowest;
    }
  }
  void print(std::string_view name) const {
    std::printf(
        "%-44.*s %5d plans %9lld steps  make %6.2f s  verify %6.2f s  slowest %5.2f s %s%s\n",
        static_cast<int>(name.size()), name.data(), plans, static_cast<long long>(steps),
        make_seconds, verify_seconds, slowest_seconds, slowest.c_str(),
        failures > 0 ? str("  ", failures, " FAILED").c_str() : "");
    std::fflush(stdout);
  }
};

void prove(const algorithm::Entry& entry, const algorithm::Request& request,
           const std::string& what, Totals& totals) {
  if (!entry.supports(request).ok()) return;
  const double start = cpu_seconds();
  const Result<plan::Plan> plan = algorithm::make_plan(entry, request);
  const double made = cpu_seconds();
  totals.make_seconds += made - start;
  ++totals.plans;
  if (!plan.ok()) {
    ++totals.failures;
    std::printf("%s: %s\n", what.c_str(), plan.error().message.c_str());
    return;
  }
  constexpr int fewest_slots = 2;  // the proof holds for more
  const verify::Report report = verify::verify(*plan, {.slots = fewest_slots});
  const double seconds = cpu_seconds() - made;
  totals.verify_seconds += seconds;
  totals.steps += report.steps;
  if (seconds > totals.slowest_seconds) {
    totals.slowest_seconds = seconds;
    totals.slowest = what;
  }
  if (report.ok()) return;
  if (++totals.failures <= 3)
    std::printf("%s: %s\n", what.c_str(), report.failures.front().describe().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view only;
  int low = 2;
  int high = 64;
  std::vector<int> also{100, 128, 255, 256};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument.starts_with("name=")) only = argument.substr(5);
    if (argument.starts_with("ranks=")) {
      char* end = nullptr;
      low = static_cast<int>(std::strtol(argv[i] + 6, &end, 10));
      high = *end == '.' ? std::atoi(end + 2) : low;
    }
    if (argument.starts_with("also=")) {
      also.clear();
      for (char* at = argv[i] + 5; *at;) {
        also.push_back(static_cast<int>(std::strtol(at, &at, 10)));
        if (*at == ',') ++at;
      }
    }
  }
  std::set<int> ranks(also.begin(), also.end());
  for (int p = low; p <= high; ++p) ranks.insert(p);

  Totals all;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    const std::string name = entry.plan_name();
    if (!only.empty() && name.find(only) == std::string::npos) continue;
    Totals totals;
    for (const int p : ranks) {
      std::vector<topo::Placement> placements{topo::Placement::single_node(p)};
      if (p % 4 == 0 && p > 4) placements.push_back(topo::Placement::uniform(p / 4, 4));
      for (const topo::Placement& placement : placements) {
        for (const bool in_place : {false, true}) {
          algorithm::Request request{.collective = entry.collective,
                                     .placement = placement,
                                     .root = has_root(entry.collective) ? p / 2 : 0,
                                     .in_place = in_place};
          prove(entry, request,
                str(name, " p=", p, " nodes=", placement.nodes(), in_place ? " in place" : ""),
                totals);
        }
      }
    }
    totals.print(name);
    all.add(totals);
  }
  all.print("all");
  return all.failures > 0 ? 1 : 0;
}
