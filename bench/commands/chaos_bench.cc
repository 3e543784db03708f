// Plays seeds of chaos on one core: chaos_bench FIRST LAST [RANKS [STRIKES [most wrong [NODES]]]].
//
// Prints how many runs a second of processor time there are, each seed being run without and with
// its strikes, and each seed that goes wrong, a single one with its story; it ends after the first
// `most wrong` of them (1).

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "chaos/play.h"

using namespace unisono::chaos;

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "chaos_bench FIRST LAST [RANKS [STRIKES [most wrong [NODES]]]]\n");
    return 2;
  }
  const auto number = [&](int place, std::uint64_t otherwise) {
    return count > place ? std::strtoull(arguments[place], nullptr, 10) : otherwise;
  };
  const std::uint64_t first = number(1, 1);
  const std::uint64_t last = number(2, 1);
  const std::uint64_t most_wrong = number(5, 1);
  const int ranks = static_cast<int>(number(3, 4));
  const Options options{.ranks = ranks,
                        .nodes = static_cast<int>(number(6, ranks > 1 ? 2 : 1)),
                        .operations = 20,
                        .strikes = static_cast<int>(number(4, 1))};
  setenv("UNISONO_LOG", "off", 1);
  std::uint64_t played = 0;
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = first; seed <= last && wrong < most_wrong; ++seed) {
    // So that a seed that crashes or does not end is known.
    std::fprintf(stderr, "\rseed %llu ", static_cast<unsigned long long>(seed));
    const Scenario scenario = scenario_of(seed, options);
    const Outcome outcome = play(scenario);
    played += scenario.strikes.empty() ? 1 : 2;
    if (outcome.wrong.empty()) continue;
    ++wrong;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.wrong.front().c_str());
    if (first == last) std::fputs(story(scenario, outcome).c_str(), stdout);
    std::fflush(stdout);
  }
  const double seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  std::printf("%llu runs, %llu wrong, %.1f runs/s\n", static_cast<unsigned long long>(played),
              static_cast<unsigned long long>(wrong), static_cast<double>(played) / seconds);
  return wrong > 0 ? 1 : 0;
}
