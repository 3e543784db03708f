#include "chaos/play.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/str.h"
#include "chaos/data.h"
#include "chaos/rank.h"
#include "chaos/visits.h"

namespace unisono::chaos {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
// Past every deadline of a run.
constexpr std::int64_t end_ns = 600 * second_ns;
// In another operation, for which a call's timeout is long.
constexpr std::int64_t long_stay_ns = 20'000'000;

// The processes of a run, and what happens to them.
class Stage final : public Witness {
 public:
  explicit Stage(const Scenario& scenario)
      : scenario_(scenario),
        simulation_(simulation_options(scenario.seed)),
        network_(simulation_, network_of(scenario.seed)),
        visits_(scenario.options.ranks),
        stays_(static_cast<std::size_t>(scenario.options.ranks)),
        still_ns_(stays_.size()) {}

  Outcome run() {
    const int ranks = scenario_.options.ranks;
    for (int rank = 0; rank < ranks; ++rank)
      simulation_.add_process(str("host", rank % scenario_.options.nodes));
    simulation_.watch([this](int rank, std::string_view place) { come_to(rank, place); });
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(scenario_, rank, surroundings_of(rank), *this));
    for (int rank = 0; rank < ranks; ++rank)
      simulation_.start(rank, [this, rank] { ranks_[static_cast<std::size_t>(rank)]->run(); });
    if (!simulation_.run(end_ns)) found_wrong("a rank never comes to its end");
    settle();
    out_.places = visits_.all();
    out_.hash = simulation_.trace_hash();
    out_.virtual_ns = simulation_.now_ns();
    out_.events = simulation_.events();
    return std::move(out_);
  }

  void begins(int rank, std::string_view phase, int group) override {
    visits_.enter(rank, phase);
    stays_[static_cast<std::size_t>(rank)].push_back({simulation_.now_ns(), group});
  }
  void saw(int rank, std::string what) override {
    out_.moments.push_back({simulation_.now_ns(), rank, std::move(what)});
  }
  void found_wrong(std::string what) override {
    out_.moments.push_back({simulation_.now_ns(), -1, "WRONG: " + what});
    out_.wrong.push_back(std::move(what));
  }
  void succeeded() override { ++out_.calls; }
  void failed() override { ++out_.failures; }
  bool is_to_blame(int rank, int group) const override {
    if (struck_.contains(rank) || aborted_.contains(rank)) return true;
    if (struck_.empty() && aborted_.empty()) return false;
    if (ended_.contains(rank)) return true;
    const auto& stays = stays_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < stays.size(); ++i) {
      const std::int64_t from_ns = std::max(stays[i].begin_ns, first_harm_ns_);
      const std::int64_t until_ns =
          i + 1 < stays.size() ? stays[i + 1].begin_ns : simulation_.now_ns();
      if ((stays[i].group != group || group < 0) && until_ns - from_ns > long_stay_ns) return true;
    }
    return false;
  }
  bool has_passing_strike() const override { return has_passing_strike_; }
  bool has_struck() const override { return out_.has_struck; }
  bool has_harm() const override { return first_harm_ns_ != 0; }
  bool is_struck(int rank) const override { return struck_.contains(rank); }
  void timed_out() override { has_timed_out_ = true; }
  bool has_timed_out() const override { return has_timed_out_; }
  std::optional<std::int64_t> killed_ns(int rank) const override {
    const auto found = killed_ns_.find(rank);
    return found == killed_ns_.end() ? std::nullopt : std::optional(found->second);
  }
  void aborts(int rank) override {
    harm();
    aborted_.insert(rank);
  }
  void gives_up_puts(int rank) override { without_puts_.insert(rank); }
  bool has_given_up_puts(int rank) const override { return without_puts_.contains(rank); }
  void destroyed(int rank) override {
    if (const int ends = network_.open_ends(rank); ends != 0)
      found_wrong(str("rank ", rank, " has destroyed its communicators, but not ", ends,
                      " ends of connections"));
  }
  void ended(int rank) override { ended_.insert(rank); }
  std::int64_t stood_still_ns(int rank) const override {
    return still_ns_[static_cast<std::size_t>(rank)];
  }

 private:
  // Every run has a network of its own kind.
  static sys::SimulationOptions simulation_options(std::uint64_t seed) {
    sys::SimulationOptions options{.seed = seed};
    options.max_delay_ns = options.min_delay_ns << hash(seed, 1, 0) % 7;
    options.hosts_share_memory = hosts_share_memory(seed);
    return options;
  }

  comm::Surroundings surroundings_of(int rank) {
    // The simulation owns its worlds.
    std::shared_ptr<sys::World> world(&simulation_.world(rank), [](sys::World*) {});
    return {.world = std::move(world),
            .make_network = [this, rank](const transport::TransportOptions& options) {
              return network_.make_transport(rank, options);
            }};
  }

  void come_to(int rank, std::string_view place) {
    const std::uint64_t times = visits_.come_to(rank, place);
    for (const Strike& strike : scenario_.strikes)
      if (strike.rank == rank && strike.nth == times &&
          strike.place == visits_.name_of(rank, place))
        happen(strike);
  }

  void harm() {
    if (first_harm_ns_ == 0) first_harm_ns_ = simulation_.now_ns();
  }

  void happen(const Strike& strike) {
    using Kind = Strike::Kind;
    out_.has_struck = true;
    out_.moments.push_back({simulation_.now_ns(), strike.rank, "*** " + describe(strike)});
    harm();
    struck_.insert(strike.rank);
    has_passing_strike_ |= (strike.kind == Kind::stop || strike.kind == Kind::delay) &&
                           strike.duration_ns > long_stay_ns;
    if (strike.kind == Kind::kill) killed_ns_.emplace(strike.rank, simulation_.now_ns());
    if (strike.kind == Kind::cut || strike.kind == Kind::delay || strike.kind == Kind::reset)
      struck_.insert(strike.other);
    const std::int64_t until_ns = simulation_.now_ns() + strike.duration_ns;
    switch (strike.kind) {
      case Kind::kill:
        return network_.kill(strike.rank, sys::Death::process);
      case Kind::lose_host:
        return network_.kill(strike.rank, sys::Death::host);
      case Kind::cut:
        return simulation_.cut(strike.rank, strike.other, sys::no_deadline_ns);
      case Kind::delay:
        return simulation_.cut(strike.rank, strike.other, until_ns);
      case Kind::reset:
        return network_.reset(strike.rank, strike.other);
      case Kind::stop:
        still_ns_[static_cast<std::size_t>(strike.rank)] += strike.duration_ns;
        return simulation_.stop(strike.rank, until_ns);
    }
  }

  // What ended ranks have left, once all that is on its way has come.
  void settle() {
    // A rank that was killed has its objects for ever, as it stands in the middle of using them.
    static auto* const left = new std::vector<std::unique_ptr<Rank>>;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!ended_.contains(static_cast<int>(rank)))
        left->push_back(std::move(ranks_[rank]));
      else
        ranks_[rank]->look_at_canaries();
    ranks_.clear();
    if (const int ends = network_.open_ends(); ends != 0)
      found_wrong(str(ends, " ends of connections are left"));
    if (const int ends = network_.ends_left_exposed(); ends != 0)
      found_wrong(str(ends, " connections were closed while memory was exposed on them"));
    if (const auto streams = simulation_.open_streams(); streams != 0)
      found_wrong(str(streams, " streams of the control plane are left"));
    if (const auto listeners = simulation_.open_listeners(); listeners != 0)
      found_wrong(str(listeners, " listeners are left"));
    if (const auto threads = simulation_.running_threads(); threads != 0)
      found_wrong(str(threads, " threads are left"));
  }

  const Scenario& scenario_;
  sys::Simulation simulation_;
  transport::emulated::Network network_;
  Visits visits_;
  struct Stay {
    std::int64_t begin_ns;
    int group;
  };
  std::vector<std::vector<Stay>> stays_;  // by rank
  std::vector<std::int64_t> still_ns_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::set<int> struck_;
  std::int64_t first_harm_ns_ = 0;  // a strike, or an abort
  bool has_passing_strike_ = false;
  bool has_timed_out_ = false;
  std::map<int, std::int64_t> killed_ns_;
  std::set<int> aborted_;
  std::set<int> without_puts_;
  std::set<int> ended_;
  Outcome out_;
};

Strike draw_strike(const Options& options, std::uint64_t seed, std::uint64_t number,
                   const Outcome& calm) {
  using Kind = Strike::Kind;
  const auto draw = [&](std::uint64_t what, std::uint64_t below) {
    return hash(seed * 64 + number, 100 + what, 0) % below;
  };
  auto place = calm.places.begin();
  std::advance(place, static_cast<std::ptrdiff_t>(draw(0, calm.places.size())));
  Strike out;
  out.kind = static_cast<Kind>(draw(1, 6));
  out.rank = place->first.first;
  out.place = place->first.second;
  out.nth = 1 + draw(2, place->second);
  const auto others = static_cast<std::uint64_t>(options.ranks - 1);
  out.other = static_cast<int>((static_cast<std::uint64_t>(out.rank) + 1 + draw(3, others)) %
                               static_cast<std::uint64_t>(options.ranks));
  out.duration_ns = std::int64_t{1'000} << draw(4, 20);
  return out;
}

}  // namespace

Outcome play(const Scenario& scenario) { return Stage(scenario).run(); }

Scenario scenario_of(std::uint64_t seed, const Options& options) {
  Scenario out = make_scenario(seed, options);
  if (options.strikes == 0 || options.ranks < 2) return out;
  const Outcome calm = play(out);
  for (int i = 0; i < options.strikes; ++i)
    out.strikes.push_back(draw_strike(options, seed, static_cast<std::uint64_t>(i), calm));
  return out;
}

std::string story(const Scenario& scenario, const Outcome& outcome) {
  std::string out = str("seed ", scenario.seed, ", ", scenario.options.ranks, " ranks on ",
                        scenario.options.nodes, " nodes\n");
  for (const Strike& strike : scenario.strikes) out += str("  strike: ", describe(strike), "\n");
  for (const Operation& operation : scenario.operations)
    out += str("  ", operation.number, ". ", describe(operation), "\n");
  for (const Moment& moment : outcome.moments) {
    const std::int64_t us = moment.time_ns / 1000;
    out += str(us, " us  ", moment.rank < 0 ? std::string("-") : str("rank ", moment.rank), "  ",
               moment.what, "\n");
  }
  return out;
}

}  // namespace unisono::chaos
