#include "chaos/scenario.h"

#include <algorithm>
#include <array>
#include <random>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "chaos/data.h"

namespace unisono::chaos {
namespace {

constexpr std::array collectives{Collective::all_reduce,     Collective::all_gather,
                                 Collective::reduce_scatter, Collective::broadcast,
                                 Collective::reduce,         Collective::gather,
                                 Collective::scatter,        Collective::all_to_all};
// Sums of what chaos gives them are exact in each, whatever the order.
constexpr std::array types{DataType::int32, DataType::int64, DataType::float32, DataType::float64,
                           DataType::uint8};
constexpr std::array reductions{ReduceOperation::sum, ReduceOperation::min, ReduceOperation::max};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool one_in(std::uint64_t times) { return below(times) == 0; }
  template <class List>
  auto pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  std::mt19937_64 random_;
};

// Mostly small, so that many fit into a second; some fill all slots of a connection.
std::int64_t draw_count(Dice& dice) {
  switch (dice.below(8)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return 1 + static_cast<std::int64_t>(dice.below(6'000));
    default:
      return 1 + static_cast<std::int64_t>(dice.below(600));
  }
}

std::string draw_algorithm(Dice& dice, Collective collective) {
  if (dice.one_in(2)) return {};
  std::vector<std::string_view> names;
  for (const algorithm::Entry& entry : algorithm::entries())
    if (entry.collective == collective) names.push_back(entry.name);
  return names.empty() ? std::string() : std::string(dice.pick(names));
}

// Of a hundred, so many; from `newest` to the aborts it is a split of the newest group.
constexpr std::uint64_t newest = 93;
constexpr std::uint64_t aborts = 97;

Operation::Kind kind_of(std::uint64_t drawn) {
  if (drawn < 55) return Operation::Kind::call;
  if (drawn < 70) return Operation::Kind::calls_at_once;
  if (drawn < 79) return Operation::Kind::messages;
  if (drawn < 86) return Operation::Kind::gets;
  if (drawn < aborts) return Operation::Kind::split;
  return Operation::Kind::abort;
}

// Its window has one slot a rank.
constexpr std::int64_t most_elements_of_slot = 600;

bool becomes_windows(std::uint64_t seed, const Operation& operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::split || operation.kind == Kind::abort) return false;
  return has_windows(seed) && hash(seed, operation.number, 80) % 3 == 0;
}

}  // namespace

bool has_windows(std::uint64_t seed) { return hash(seed, 11, 0) % 3 == 0; }

bool hosts_share_memory(std::uint64_t seed) { return hash(seed, 12, 0) % 3 == 0; }

transport::emulated::NetworkOptions network_of(std::uint64_t seed) {
  transport::emulated::NetworkOptions options;
  options.max_latency_ns = options.min_latency_ns << hash(seed, 2, 0) % 8;
  options.bytes_per_second >>= hash(seed, 3, 0) % 6;
  options.most_underway_bytes >>= hash(seed, 4, 0) % 13;
  options.needs_progress = hash(seed, 7, 0) % 2 == 0;
  return options;
}

Scenario make_scenario(std::uint64_t seed, const Options& options) {
  Dice dice(seed * 0x9e3779b97f4a7c15 + 1);
  Scenario out{.seed = seed, .options = options, .operations = {}, .strikes = {}};
  int groups = 1;
  for (int i = 0; i < options.operations; ++i) {
    Operation one;
    const std::uint64_t drawn = dice.below(100);
    one.kind = kind_of(drawn);
    one.group = static_cast<int>(dice.below(static_cast<std::uint64_t>(groups)));
    one.collective = dice.pick(collectives);
    one.algorithm = draw_algorithm(dice, one.collective);
    one.count = draw_count(dice);
    one.type = dice.pick(types);
    one.operation = dice.pick(reductions);
    one.root = static_cast<int>(dice.below(64));
    one.calls = 2 + static_cast<int>(dice.below(3));
    one.colors = 1 + static_cast<int>(dice.below(3));
    one.number = static_cast<std::uint64_t>(i);
    if (one.kind == Operation::Kind::split && drawn >= newest) one.group = groups - 1;
    if (one.kind == Operation::Kind::split) ++groups;
    // Of the group of all, an abort would end the run.
    if (one.kind == Operation::Kind::abort && one.group == 0) one.kind = Operation::Kind::call;
    if (becomes_windows(seed, one)) {
      one.kind = Operation::Kind::windows;
      one.count %= most_elements_of_slot + 1;
    }
    out.operations.push_back(std::move(one));
  }
  return out;
}

std::string describe(const Operation& operation) {
  const std::string of = str(" of group ", operation.group);
  const std::string call =
      str(name(operation.collective), " of ", operation.count, " ", name(operation.type),
          operation.algorithm.empty() ? "" : " by ", operation.algorithm);
  switch (operation.kind) {
    case Operation::Kind::call:
      return call + of;
    case Operation::Kind::calls_at_once:
      return str(operation.calls, " at once: ", call, of);
    case Operation::Kind::messages:
      return str("messages of ", operation.count, " ", name(operation.type), " round the ring", of);
    case Operation::Kind::gets:
      return str("gets of ", operation.count, " ", name(operation.type), " round the ring", of);
    case Operation::Kind::windows:
      return str("puts of ", operation.count, " ", name(operation.type), " into windows", of);
    case Operation::Kind::split:
      return str("split into ", operation.colors, of);
    case Operation::Kind::abort:
      return str("abort", of, " by rank ", operation.root, " of it");
  }
  return {};
}

std::string describe(const Strike& strike) {
  const std::string where = str(" when rank ", strike.rank, " comes to ", strike.place, " for the ",
                                strike.nth, ". time");
  const std::string pair = str("rank ", strike.rank, " and rank ", strike.other);
  switch (strike.kind) {
    case Strike::Kind::kill:
      return str("rank ", strike.rank, " is killed", where);
    case Strike::Kind::lose_host:
      return str("the host of rank ", strike.rank, " is lost", where);
    case Strike::Kind::cut:
      return str(pair, " are cut off from each other", where);
    case Strike::Kind::delay:
      return str("nothing gets through between ", pair, " for ", strike.duration_ns, " ns", where);
    case Strike::Kind::reset:
      return str("the connections of ", pair, " are reset", where);
    case Strike::Kind::stop:
      return str("rank ", strike.rank, " is stopped for ", strike.duration_ns, " ns", where);
  }
  return {};
}

}  // namespace unisono::chaos
