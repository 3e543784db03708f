// The idea is TACOS' (Won et al., MICRO 2024): go through time, and at every moment match the links
// that are free with chunks that one end has and the other still needs. Ours goes from event to
// event rather than in equal steps, so that links may be of any speed; a way through switches is
// free when a lane of each of its links is.
//
// Which chunk: the one that the fewest ranks have or are getting, because it has the longest way to
// go; among equals a random one. A receiver with several ways first uses the one that offers it
// least. A slow way does not carry what a nearer rank has or is getting, unless there is so much of
// it that the receiver would wait for that much longer.
#include "synthesize/match.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

namespace unisono::synthesize {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }

 private:
  std::uint64_t state_;
};

class Matcher {
 public:
  Matcher(const LinkGraph& graph, const Routes& routes, const std::vector<float>& between,
          int chunks, std::uint64_t seed)
      : routes_(routes),
        between_(between),
        random_(seed),
        ranks_(at(graph.ranks)),
        chunks_(ranks_ * at(chunks)),
        words_((chunks_ + 63) / 64),
        has_(ranks_ * words_),
        wanted_(ranks_ * words_),
        missing_(ranks_, chunks_ - at(chunks)),
        holders_(chunks_, 1),
        ways_into_(ranks_),
        ways_from_(ranks_),
        routes_over_(graph.links.size()),
        waits_(ranks_, true) {
    for (const Link& link : graph.links) free_lanes_.push_back(link.lanes);
    std::vector<double> rate(ranks_);  // of chunks into each rank, for each picosecond
    for (std::size_t i = 0; i < routes.routes.size(); ++i) {
      const Route& route = routes.routes[i];
      const auto number = static_cast<std::int32_t>(i);
      ways_into_[at(route.to)].push_back(number);
      ways_from_[at(route.from)].push_back(number);
      for (const std::int32_t link : routes.links_of(route))
        routes_over_[at(link)].push_back(number);
      uniform_ = uniform_ && route.duration == routes.routes[0].duration;
    }
    for (std::size_t i = 0; i < graph.links.size(); ++i)
      if (at(graph.links[i].to) < ranks_)
        rate[at(graph.links[i].to)] += graph.links[i].lanes / static_cast<double>(routes.hold[i]);
    for (const double one : rate) chunk_time_.push_back(one > 0 ? 1 / one : 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t chunk = 0; chunk < chunks_; ++chunk)
        set(chunk / at(chunks) == rank ? has_ : wanted_, rank, chunk);
    if (uniform_) return;
    // Chunks of one owner are at one distance, as long as nobody else has them.
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
      const float* own = &between[chunk / at(chunks) * ranks_];
      nearest_.insert(nearest_.end(), own, own + ranks_);
    }
  }

  std::vector<Transfer> run() {
    transfers_.reserve(ranks_ * chunks_);
    std::vector<std::int32_t> receivers;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      receivers.push_back(static_cast<std::int32_t>(rank));
    while (true) {
      for (std::size_t i = receivers.size(); i > 1; --i)
        std::swap(receivers[i - 1], receivers[random_.below(i)]);
      for (const std::int32_t rank : receivers) match(rank);
      if (events_.empty()) break;
      receivers = next_moment();
    }
    return std::move(transfers_);
  }

 private:
  // A chunk has come, or a lane is free again.
  struct Event {
    Time time;
    std::int32_t link;  // -1: a chunk has come
    std::int32_t rank;
    std::int32_t chunk;
    bool operator>(const Event& other) const { return time > other.time; }
  };

  void set(std::vector<std::uint64_t>& bits, std::size_t rank, std::size_t chunk) const {
    bits[rank * words_ + chunk / 64] |= std::uint64_t{1} << (chunk % 64);
  }

  bool is_free(const Route& route) const {
    return std::ranges::all_of(routes_.links_of(route),
                               [&](std::int32_t link) { return free_lanes_[at(link)] > 0; });
  }

  std::size_t offered(const Route& route) const {
    const std::uint64_t* has = &has_[at(route.from) * words_];
    const std::uint64_t* wanted = &wanted_[at(route.to) * words_];
    std::size_t count = 0;
    for (std::size_t i = 0; i < words_; ++i) count += at(std::popcount(has[i] & wanted[i]));
    return count;
  }

  // Whether some rank has the chunk, or is getting it, from which it is a shorter way.
  bool is_nearer_elsewhere(const Route& route, std::size_t chunk) const {
    return !uniform_ && static_cast<double>(nearest_[chunk * ranks_ + at(route.to)]) <
                            static_cast<double>(route.duration) * (1 - 1e-6);
  }

  // -1: none.
  std::int32_t choose_chunk(const Route& route) {
    struct Choice {
      std::int32_t best = -1;
      std::int32_t fewest = 0;
      int count = 0;
    };
    std::array<Choice, 2> choices;  // the second of those that are nearer elsewhere
    const std::uint64_t* has = &has_[at(route.from) * words_];
    const std::uint64_t* wanted = &wanted_[at(route.to) * words_];
    const std::size_t start = random_.below(words_);
    for (std::size_t i = 0; i < words_; ++i) {
      const std::size_t word = start + i < words_ ? start + i : start + i - words_;
      std::uint64_t bits = has[word] & wanted[word];
      // The word's bits from a random one on.
      const int turn = static_cast<int>(random_.next() % 64);
      bits = std::rotr(bits, turn);
      for (; bits != 0; bits &= bits - 1) {
        const std::size_t chunk = word * 64 + at((std::countr_zero(bits) + turn) % 64);
        Choice& choice = choices[is_nearer_elsewhere(route, chunk) ? 1 : 0];
        ++choice.count;
        if (choice.best >= 0 && holders_[chunk] >= choice.fewest) continue;
        choice.best = static_cast<std::int32_t>(chunk);
        choice.fewest = holders_[chunk];
      }
    }
    if (choices[0].best >= 0) return choices[0].best;
    const double backlog = choices[1].count * chunk_time_[at(route.to)];
    return backlog > 2 * static_cast<double>(route.duration) ? choices[1].best : -1;
  }

  // Ways that are free and offer something: all of a few, the first found of many.
  void find_usable(std::int32_t rank) {
    constexpr std::size_t most = 8;
    usable_.clear();
    const std::vector<std::int32_t>& into = ways_into_[at(rank)];
    const std::size_t start = into.empty() ? 0 : random_.below(into.size());
    for (std::size_t i = 0; i < into.size() && usable_.size() < most; ++i) {
      const std::int32_t number = into[(start + i) % into.size()];
      if (!is_free(routes_.routes[at(number)])) continue;
      if (const std::size_t count = offered(routes_.routes[at(number)]); count > 0)
        usable_.emplace_back(count, number);
    }
    std::ranges::sort(usable_);
  }

  void match(std::int32_t rank) {
    bool again = missing_[at(rank)] > 0;
    while (again) {
      again = false;
      find_usable(rank);
      for (const auto& [count, number] : usable_) {
        const Route& route = routes_.routes[at(number)];
        const std::int32_t chunk = choose_chunk(route);
        if (chunk < 0) continue;
        send(route, chunk);
        again = missing_[at(rank)] > 0;
        break;
      }
    }
    waits_[at(rank)] = missing_[at(rank)] > 0;
  }

  void send(const Route& route, std::int32_t chunk) {
    const std::size_t to = at(route.to);
    for (const std::int32_t link : routes_.links_of(route)) {
      --free_lanes_[at(link)];
      events_.push({now_ + routes_.hold[at(link)], link, 0, 0});
    }
    transfers_.push_back({chunk, route.from, route.to, false, now_, now_ + route.duration});
    events_.push({now_ + route.duration, -1, route.to, chunk});
    wanted_[to * words_ + at(chunk) / 64] &= ~(std::uint64_t{1} << (chunk % 64));
    --missing_[to];
    ++holders_[at(chunk)];
    if (uniform_) return;
    float* nearest = &nearest_[at(chunk) * ranks_];
    const float* near = &between_[to * ranks_];
    for (std::size_t i = 0; i < ranks_; ++i) nearest[i] = std::min(nearest[i], near[i]);
  }

  // Goes on to when something happens; the receivers for whom that may change something.
  std::vector<std::int32_t> next_moment() {
    now_ = events_.top().time;
    std::vector<std::int32_t> touched;
    const auto touch = [&](const std::vector<std::int32_t>& routes) {
      for (const std::int32_t number : routes) {
        const std::int32_t rank = routes_.routes[at(number)].to;
        if (!waits_[at(rank)]) continue;
        waits_[at(rank)] = false;
        touched.push_back(rank);
      }
    };
    while (!events_.empty() && events_.top().time == now_) {
      const Event event = events_.top();
      events_.pop();
      if (event.link >= 0) {
        ++free_lanes_[at(event.link)];
        touch(routes_over_[at(event.link)]);
      } else {
        set(has_, at(event.rank), at(event.chunk));
        touch(ways_from_[at(event.rank)]);
      }
    }
    return touched;
  }

  const Routes& routes_;
  const std::vector<float>& between_;
  Random random_;
  std::size_t ranks_;
  std::size_t chunks_;                 // of all ranks
  std::size_t words_;                  // of 64 chunks
  std::vector<std::uint64_t> has_;     // by rank: chunks that are there
  std::vector<std::uint64_t> wanted_;  // neither there nor on their route
  std::vector<std::size_t> missing_;   // how many those are
  std::vector<std::int32_t> holders_;  // by chunk: ranks that have it or are getting it
  std::vector<std::vector<std::int32_t>> ways_into_, ways_from_;  // by rank
  std::vector<std::vector<std::int32_t>> routes_over_;            // by link
  std::vector<bool> waits_;         // by rank: for something to happen
  std::vector<int> free_lanes_;     // by link
  std::vector<double> chunk_time_;  // by rank: between two chunks that come in, at best
  std::vector<float> nearest_;      // by chunk and rank: from the nearest holder
  bool uniform_ = true;             // all routes are equal
  Time now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::pair<std::size_t, std::int32_t>> usable_;
  std::vector<Transfer> transfers_;
};

}  // namespace

std::vector<Transfer> match_all_gather(const LinkGraph& graph, const Routes& routes,
                                       const std::vector<float>& between, int chunks,
                                       std::uint64_t seed) {
  return Matcher(graph, routes, between, chunks, seed).run();
}

}  // namespace unisono::synthesize
