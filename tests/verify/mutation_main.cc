// How many wrong plans the verifier notices.
//
//   mutation [plans=10000] [seed=1] [runs=60] [ranks=9] [audit=N]
//
// Each plan is a built-in one with one field of one step changed. What the verifier accepts is run
// `runs` times on random numbers in random orders: if that goes wrong, the verifier has a hole.
// `audit=N` runs every N-th rejected one too, and counts those with which nothing went wrong. Ends
// with 1 if there is a hole, or a built-in plan that is wrong unchanged.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/str.h"
#include "support/mutation.h"
#include "verify/verify.h"

namespace {

using namespace unisono;

struct Arguments {
  long plans = 10000;
  long seed = 1;
  long runs = 60;
  long ranks = 9;
  long audit = 0;
};

bool read(std::string_view argument, std::string_view key, long& value) {
  if (!argument.starts_with(key) || argument.substr(key.size(), 1) != "=") return false;
  value = std::atol(argument.data() + key.size() + 1);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (!read(argument, "plans", arguments.plans) && !read(argument, "seed", arguments.seed) &&
        !read(argument, "runs", arguments.runs) && !read(argument, "ranks", arguments.ranks) &&
        !read(argument, "audit", arguments.audit)) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }

  std::mt19937_64 random(static_cast<std::uint64_t>(arguments.seed));
  test::Tally tally;
  long wrong_unchanged = 0;
  long audited = 0;
  long harmless = 0;
  for (long made = 0; made < arguments.plans;) {
    const test::Sample sample = test::sample_request(random, static_cast<int>(arguments.ranks));
    const Result<plan::Plan> plan = algorithm::make_plan(*sample.entry, sample.request);
    if (!plan.ok()) {
      std::fprintf(stderr, "%s: %s\n", sample.describe().c_str(), plan.error().message.c_str());
      return 2;
    }
    if (const verify::Report report = verify::verify(*plan); !report.ok()) {
      if (wrong_unchanged++ < 3)
        std::printf("%s is wrong unchanged: %s\n\n", sample.describe().c_str(),
                    report.failures.front().describe().c_str());
      continue;
    }
    std::optional<test::Mutant> mutant;
    for (int tries = 0; tries < 20 && !mutant; ++tries) mutant = test::mutate(*plan, random);
    if (!mutant) continue;
    ++made;
    const test::Trial trial =
        test::judge(*plan, *mutant, static_cast<int>(arguments.runs), random());
    tally.add(sample, *mutant, trial);
    if (trial.outcome == test::Outcome::caught && arguments.audit > 0 &&
        made % arguments.audit == 0) {
      ++audited;
      if (!test::find_fault_of(*mutant, static_cast<int>(arguments.runs), random())) {
        ++harmless;
        if (harmless <= 5)
          std::printf("nothing went wrong with: %s: %s\n%s\n", sample.describe().c_str(),
                      mutant->what.c_str(), trial.evidence.c_str());
      }
    }
  }

  std::printf("%s\n", tally.table().c_str());
  for (const std::string& hole : tally.holes) std::printf("hole: %s\n", hole.c_str());
  for (const std::string& survivor : tally.changed)
    std::printf("right with other steps: %s\n", survivor.c_str());
  if (wrong_unchanged > 0) std::printf("%ld plans were wrong unchanged\n", wrong_unchanged);
  if (audited > 0)
    std::printf("of %ld rejected plans that were run, %ld ran without fault\n", audited, harmless);
  std::printf("%lld mutants; %.3f %% of the wrong ones caught\n",
              static_cast<long long>(tally.total()), 100 * tally.share_caught());
  return tally.total(test::Outcome::hole) + wrong_unchanged > 0 ? 1 : 0;
}
