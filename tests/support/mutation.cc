#include "support/mutation.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <tuple>
#include <utility>
#include <variant>

#include "base/str.h"
#include "plan/check.h"
#include "plan/walk.h"
#include "support/interpreter.h"
#include "verify/verify.h"

namespace unisono::test {
namespace {

using plan::Body;
using plan::Index;
using plan::Location;
using plan::Loop;
using plan::Operation;
using plan::Plan;
using plan::Step;
using plan::ThreadBlock;

constexpr std::array<std::string_view, field_count> fields{"operation",
                                                           "buffer",
                                                           "base",
                                                           "coefficient",
                                                           "modulus",
                                                           "scale",
                                                           "offset",
                                                           "count",
                                                           "dependency removed",
                                                           "dependency changed",
                                                           "dependency added",
                                                           "peer",
                                                           "channel",
                                                           "loop count",
                                                           "step deleted",
                                                           "step doubled",
                                                           "steps swapped"};

// A step or loop, and the body it stands in.
struct Place {
  Body* body;
  std::size_t position;
  int depth;  // loops around it
};

void collect(Body& body, int depth, std::vector<Place>& steps, std::vector<Place>& loops) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (Loop* loop = std::get_if<Loop>(&body[i])) {
      loops.push_back({&body, i, depth});
      collect(loop->body, depth + 1, steps, loops);
    } else {
      steps.push_back({&body, i, depth});
    }
  }
}

class Mutator {
 public:
  Mutator(const Plan& plan, std::mt19937_64& random) : plan_(plan), random_(random) {}

  std::optional<Mutant> run() {
    rank_ = below(plan_.header.ranks);
    auto& thread_blocks = plan_.programs[static_cast<std::size_t>(rank_)].thread_blocks;
    if (thread_blocks.empty()) return std::nullopt;
    block_ = below(static_cast<int>(thread_blocks.size()));
    thread_block_ = &thread_blocks[static_cast<std::size_t>(block_)];
    collect(thread_block_->body, 0, steps_, loops_);
    if (steps_.empty()) return std::nullopt;
    place_ = steps_[static_cast<std::size_t>(below(static_cast<int>(steps_.size())))];
    const auto field = static_cast<Field>(below(field_count));
    const std::string before = str(plan::name(step().operation));
    if (!change(field)) return std::nullopt;
    return Mutant{std::move(plan_), field,
                  str("rank ", rank_, " thread block ", block_, " ", before, ": ", name(field), " ",
                      change_)};
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  Step& step() { return std::get<Step>((*place_.body)[place_.position]); }

  template <class T>
  bool set(T& field, T value) {
    if (field == value) return false;
    if constexpr (std::integral<T>) change_ = str(field, " -> ", value);
    field = std::move(value);
    return true;
  }

  // Near values are the likeliest mistakes, and the hardest to see.
  template <class T>
  bool nudge(T& field) {
    constexpr std::array<int, 8> by{1, -1, 1, -1, 2, -2, 3, -3};
    const bool far = below(4) == 0;
    const int chunks = plan_.header.chunks_per_block;
    const int much = below(2) == 0 ? chunks : below(4 * plan_.header.ranks) - 2;
    return set(field,
               static_cast<T>(field + (far ? much : by[static_cast<std::size_t>(below(8))])));
  }

  // One of the locations that the step uses.
  Location* location() {
    const bool source = plan::reads_source(step().operation);
    const bool destination = plan::writes_destination(step().operation);
    if (!source && !destination) return nullptr;
    if (source && (!destination || below(2) == 0)) return &step().source;
    return &step().destination;
  }

  // One of the step's indices: of a location or of a dependency.
  Index* index() {
    if (!step().after.empty() && below(4) == 0)
      return &step()
                  .after[static_cast<std::size_t>(below(static_cast<int>(step().after.size())))]
                  .steps;
    Location* of = location();
    return of ? &of->index : nullptr;
  }

  bool change(Field field) {
    switch (field) {
      case Field::operation:
        if (!set(step().operation, static_cast<Operation>(below(plan::operation_count))))
          return false;
        change_ = str("-> ", plan::name(step().operation));
        return true;
      case Field::buffer:
        return change_buffer();
      case Field::base: {
        Index* at = index();
        return at && nudge(at->base);
      }
      case Field::coefficient: {
        Index* at = index();
        return at && place_.depth > 0 &&
               nudge(at->coefficient[static_cast<std::size_t>(below(place_.depth))]);
      }
      case Field::modulus: {
        Index* at = index();
        return at && (place_.depth > 0 || at->modulus > 0) && nudge(at->modulus) &&
               at->modulus >= 0;
      }
      case Field::scale: {
        Index* at = index();
        return at && nudge(at->scale);
      }
      case Field::offset: {
        Index* at = index();
        return at && nudge(at->offset);
      }
      case Field::count:
        return nudge(step().count);
      case Field::dependency_removed:
      case Field::dependency_changed:
      case Field::dependency_added:
        return change_dependency(field);
      case Field::peer: {
        int& peer = below(2) == 0 ? thread_block_->send_peer : thread_block_->recv_peer;
        return peer >= 0 && set(peer, below(plan_.header.ranks));
      }
      case Field::channel:
        plan_.header.channels = std::max(plan_.header.channels, 2);
        return set(thread_block_->channel, below(plan_.header.channels));
      case Field::loop_count: {
        if (loops_.empty()) return false;
        const Place at = loops_[static_cast<std::size_t>(below(static_cast<int>(loops_.size())))];
        return nudge(std::get<Loop>((*at.body)[at.position]).count);
      }
      case Field::step_deleted:
      case Field::step_doubled:
      case Field::steps_swapped:
        return change_order(field);
    }
    return false;
  }

  bool change_buffer() {
    Location* of = location();
    if (!of || !set(of->buffer, static_cast<plan::Buffer>(below(3)))) return false;
    change_ = str(of == &step().source ? "source" : "destination", " -> ", plan::name(of->buffer));
    return true;
  }

  bool change_dependency(Field field) {
    std::vector<plan::Dependency>& after = step().after;
    if (field == Field::dependency_added) {
      const auto blocks = plan_.programs[static_cast<std::size_t>(rank_)].thread_blocks.size();
      if (blocks < 2) return false;
      const int on = below(static_cast<int>(blocks));
      after.push_back({on, 1 + below(3)});
      change_ = str("thread block ", on, " steps ", after.back().steps.base);
      return on != block_;
    }
    if (after.empty()) return false;
    const auto which = static_cast<std::size_t>(below(static_cast<int>(after.size())));
    if (field == Field::dependency_removed) {
      change_ = str("on thread block ", after[which].thread_block);
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(which));
      return true;
    }
    if (below(2) == 0) return nudge(after[which].thread_block);
    return nudge(after[which].steps.base);
  }

  bool change_order(Field field) {
    Body& body = *place_.body;
    const auto at = body.begin() + static_cast<std::ptrdiff_t>(place_.position);
    if (field == Field::step_deleted) {
      body.erase(at);
      return true;
    }
    if (field == Field::step_doubled) {
      body.insert(at, plan::Node(*at));
      return true;
    }
    const auto other = static_cast<std::size_t>(below(static_cast<int>(body.size())));
    if (other == place_.position || !std::holds_alternative<Step>(body[other])) return false;
    if (std::get<Step>(body[other]) == step()) return false;
    std::swap(body[other], body[place_.position]);
    change_ = str(place_.position, " and ", other);
    return true;
  }

  Plan plan_;
  std::mt19937_64& random_;
  int rank_ = 0;
  int block_ = 0;
  ThreadBlock* thread_block_ = nullptr;
  std::vector<Place> steps_;
  std::vector<Place> loops_;
  Place place_{};
  std::string change_;
};

// What a step does, evaluated.
struct Flat {
  Operation operation;
  int count = 0;
  std::pair<plan::Buffer, std::int64_t> source{};
  std::pair<plan::Buffer, std::int64_t> destination{};
  std::vector<std::pair<int, std::int64_t>> after;
  std::vector<int> peers;
  auto operator<=>(const Flat&) const = default;
};

std::vector<Flat> flatten(const ThreadBlock& thread_block) {
  std::vector<Flat> all;
  for (plan::StepCursor at(thread_block.body); at.step(); at.advance()) {
    const Step& step = *at.step();
    Flat flat{.operation = step.operation, .after = {}, .peers = {}};
    const bool reads = plan::reads_source(step.operation);
    const bool writes = plan::writes_destination(step.operation);
    if (reads) flat.source = {step.source.buffer, step.source.index.at(at.loops())};
    if (writes) flat.destination = {step.destination.buffer, step.destination.index.at(at.loops())};
    if (reads || writes) flat.count = step.count;
    for (const plan::Dependency& on : step.after)
      if (const std::int64_t steps = on.steps.at(at.loops()); steps > 0)
        flat.after.emplace_back(on.thread_block, steps);
    std::ranges::sort(flat.after);
    flat.after.erase(std::unique(flat.after.begin(), flat.after.end()), flat.after.end());
    if (step.operation == Operation::read_reduce) flat.peers = step.peers;
    all.push_back(std::move(flat));
  }
  return all;
}

struct FlatBlock {
  int channel;
  int send_peer;
  int recv_peer;
  std::vector<Flat> steps;
  bool operator==(const FlatBlock&) const = default;
};
using FlatRank = std::vector<FlatBlock>;

FlatRank flatten(const plan::RankProgram& program) {
  FlatRank blocks;
  for (const ThreadBlock& it : program.thread_blocks) {
    FlatBlock block{it.channel, -1, -1, flatten(it)};
    // A peer that no step uses means nothing.
    for (const Flat& step : block.steps) {
      if (plan::sends(step.operation) || step.operation == Operation::put)
        block.send_peer = it.send_peer;
      if (plan::receives(step.operation)) block.recv_peer = it.recv_peer;
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// Gives every chunk the name of the memory it lies in.
void rename(FlatRank& rank, const plan::Header& header, int number) {
  const auto to_storage = [&](std::pair<plan::Buffer, std::int64_t>& place) {
    const plan::Storage storage = plan::storage_of(header, number, place.first, place.second);
    place = {storage.buffer, storage.chunk};
  };
  for (FlatBlock& block : rank)
    for (Flat& step : block.steps) {
      to_storage(step.source);
      to_storage(step.destination);
    }
}

// Forgets which chunks the steps touch.
void forget_places(FlatRank& rank) {
  for (FlatBlock& block : rank)
    for (Flat& step : block.steps) {
      step.source = step.destination = {};
      step.count = 0;
    }
}

using Transfer = std::tuple<int, int, Flat>;  // peers, and a step without its `after`

// What a rank does, in no order.
std::vector<Transfer> transfers(const FlatRank& rank) {
  std::vector<Transfer> all;
  for (const FlatBlock& block : rank)
    for (Flat step : block.steps) {
      step.after.clear();
      all.emplace_back(block.send_peer, block.recv_peer, std::move(step));
    }
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::string_view name(Field field) { return fields[static_cast<std::size_t>(field)]; }

std::optional<Mutant> mutate(const Plan& plan, std::mt19937_64& random) {
  return Mutator(plan, random).run();
}

std::string_view name(Difference difference) {
  constexpr std::array<std::string_view, difference_count> names{
      "the same steps, evaluated",
      "the same memory by another name",
      "the same steps in another order",
      "another chunk for a barrier's tokens",
      "a step done twice",
      "other steps"};
  return names[static_cast<std::size_t>(difference)];
}

Difference difference(const Plan& original, const Plan& mutant) {
  Difference most = Difference::none;
  for (std::size_t i = 0; i < original.programs.size(); ++i) {
    FlatRank before = flatten(original.programs[i]);
    FlatRank after = flatten(mutant.programs[i]);
    if (before == after) continue;
    rename(before, original.header, static_cast<int>(i));
    rename(after, mutant.header, static_cast<int>(i));
    const std::vector<Transfer> was = transfers(before);
    const std::vector<Transfer> is = transfers(after);
    const auto distinct = [](std::vector<Transfer> all) {
      all.erase(std::unique(all.begin(), all.end()), all.end());
      return all;
    };
    Difference here = Difference::content;
    if (before == after)
      here = Difference::names;
    else if (was == is)
      here = Difference::order;
    else if (distinct(was) == distinct(is))
      here = Difference::repetition;
    if (here == Difference::content && original.header.collective == Collective::barrier) {
      forget_places(before);
      forget_places(after);
      if (before == after) here = Difference::tokens;
    }
    most = std::max(most, here);
  }
  return most;
}

std::string Sample::describe() const {
  std::vector<int> nodes;
  for (int rank = 0; rank < request.placement.ranks(); ++rank)
    nodes.push_back(request.placement.node_of(rank));
  return str(entry->plan_name(), " on nodes ", join(nodes, " "), ", root ", request.root, ", ",
             request.channels, " channels", request.in_place ? ", in place" : "");
}

Sample sample_request(std::mt19937_64& random, int max_ranks) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  };
  const auto all = algorithm::entries();
  while (true) {
    const algorithm::Entry& entry =
        all[static_cast<std::size_t>(below(static_cast<int>(all.size())))];
    const int ranks = 2 + below(max_ranks - 1);
    topo::Placement placement = topo::Placement::single_node(ranks);
    if (const int shape = below(3); shape > 0) {
      const int nodes = 1 + below(ranks);
      std::vector<int> node_of(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank)
        node_of[static_cast<std::size_t>(rank)] = rank < nodes ? rank : below(nodes);
      // Half of them in blocks, the others scattered.
      if (shape == 1) std::ranges::sort(node_of);
      if (shape == 1 && ranks % nodes == 0)
        placement = topo::Placement::uniform(nodes, ranks / nodes);
      else
        placement = topo::Placement::from_nodes(node_of).value();
    }
    algorithm::Request request{.collective = entry.collective,
                               .placement = std::move(placement),
                               .root = has_root(entry.collective) ? below(ranks) : 0,
                               .in_place = below(2) == 0,
                               .channels = 1 + below(2)};
    if (entry.supports(request).ok()) return {&entry, std::move(request)};
  }
}

std::optional<std::string> find_fault_of(const Mutant& mutant, int runs, std::uint64_t seed) {
  return find_fault(mutant.plan, runs, seed, verify::Options{}.slots);
}

Trial judge(const Plan& original, const Mutant& mutant, int runs, std::uint64_t seed) {
  if (const Status status = plan::check(mutant.plan, plan::format_limits()); !status.ok())
    return {.outcome = Outcome::refused, .evidence = status.error().message};
  const verify::Report report = verify::verify(mutant.plan);
  if (!report.ok())
    return {.outcome = Outcome::caught, .evidence = report.failures.front().describe()};
  if (auto fault = find_fault_of(mutant, runs, seed))
    return {.outcome = Outcome::hole, .evidence = *fault};
  const Difference how = difference(original, mutant.plan);
  return {how == Difference::none ? Outcome::same : Outcome::equivalent, how, ""};
}

void Tally::add(const Sample& sample, const Mutant& mutant, const Trial& trial) {
  ++counts[static_cast<std::size_t>(mutant.field)][static_cast<std::size_t>(trial.outcome)];
  constexpr std::size_t most = 20;
  const std::string what = str(sample.describe(), ": ", mutant.what);
  if (trial.outcome == Outcome::hole && holes.size() < most)
    holes.push_back(str(what, "\n    ", trial.evidence));
  if (trial.outcome != Outcome::same && trial.outcome != Outcome::equivalent) return;
  ++survivors[static_cast<std::size_t>(trial.difference)];
  if (trial.difference == Difference::content && changed.size() < most) changed.push_back(what);
}

std::int64_t Tally::total(Outcome outcome) const {
  std::int64_t sum = 0;
  for (const auto& row : counts) sum += row[static_cast<std::size_t>(outcome)];
  return sum;
}

std::int64_t Tally::total() const {
  std::int64_t sum = 0;
  for (const auto& row : counts) sum = std::accumulate(row.begin(), row.end(), sum);
  return sum;
}

double Tally::share_caught() const {
  const auto caught = static_cast<double>(total(Outcome::refused) + total(Outcome::caught));
  const auto holes_left = static_cast<double>(total(Outcome::hole));
  return caught + holes_left > 0 ? caught / (caught + holes_left) : 0;
}

std::string Tally::table() const {
  std::string text;
  const auto line = [&](std::string_view what, const auto& row) {
    char buffer[160];
    std::snprintf(buffer, sizeof buffer, "%-20.*s %8lld %8lld %8lld %10lld %6lld\n",
                  static_cast<int>(what.size()), what.data(), static_cast<long long>(row[0]),
                  static_cast<long long>(row[1]), static_cast<long long>(row[2]),
                  static_cast<long long>(row[3]), static_cast<long long>(row[4]));
    append(text, std::string_view(buffer));
  };
  append(text, "field                 refused   caught     same equivalent  holes\n");
  std::array<std::int64_t, outcome_count> sums{};
  for (std::size_t field = 0; field < counts.size(); ++field) {
    line(fields[field], counts[field]);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[field][i];
  }
  line("all", sums);
  append(text, "\nsurvivors that ran without fault, and how they differ\n");
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    char buffer[80];
    std::snprintf(buffer, sizeof buffer, "%8lld  ", static_cast<long long>(survivors[i]));
    append(text, std::string_view(buffer));
    append(text, str(name(static_cast<Difference>(i)), "\n"));
  }
  return text;
}

}  // namespace unisono::test
