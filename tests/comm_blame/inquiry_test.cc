// Whom members blame: the order of suspicions, and many simulated members that find one verdict.

#include "comm/blame/inquiry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/str.h"
#include "comm/blame/fault_reasons.h"
#include "comm/control/group.h"
#include "comm/join/join.h"
#include "support/deaths.h"
#include "support/quiet.h"
#include "support/sanitized.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using Reason = FailureReason;

Suspicion suspicion(Reason reason, int culprit, int finder, std::uint32_t waited_ms = 1000,
                    bool is_overdue = true) {
  Suspicion out;
  out.reason = reason;
  out.is_overdue = is_overdue;
  out.culprit = culprit;
  out.finder = finder;
  out.waited_ms = waited_ms;
  out.text = str("seen by ", finder);
  return out;
}

constexpr std::array reasons{Reason::gone,        Reason::left,  Reason::no_answer,
                             Reason::not_in_call, Reason::waits, Reason::link};

Suspicion random_suspicion(std::mt19937_64& random, int members) {
  const auto ranks = static_cast<unsigned>(members);
  Suspicion out = suspicion(reasons[random() % reasons.size()], static_cast<int>(random() % ranks),
                            0, static_cast<std::uint32_t>(random() % 3), random() % 2 == 0);
  out.finder = (out.culprit + 1 + static_cast<int>(random() % (ranks - 1))) % members;
  out.collectives = random() % 2;
  out.waits = {.what = CallWait::What::send, .call = static_cast<std::int64_t>(random() % 3) - 1};
  if (random() % 2 == 0) out.itself = {.what = CallWait::What::receive, .peer = 1, .call = 3};
  return out;
}

bool same(std::span<const Suspicion> a, std::span<const Suspicion> b) {
  const auto words = [](const Suspicion& one) {
    return str(static_cast<int>(one.reason), one.is_overdue, " ", one.collectives, " ", one.culprit,
               " ", one.finder, " ", pack(one.waits), " ", pack(one.itself), " ", one.waited_ms,
               " ", one.text);
  };
  return std::ranges::equal(a, b, {}, words, words);
}

TEST(Suspicions, AreTheSameSetInWhateverOrderTheyArrive) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Suspicion> all;
    for (int i = 0; i < 30; ++i) all.push_back(random_suspicion(random, 6));
    Suspicions first;
    first.add(all);
    std::ranges::shuffle(all, random);
    // Through others that hold a part each, as they travel.
    Suspicions second, part;
    for (std::size_t i = 0; i < all.size(); ++i) {
      part.add(all[i]);
      if (i % 3 == 0) second.add(part.all());
    }
    second.add(part.all());
    EXPECT_TRUE(same(first.all(), second.all())) << "seed " << seed;
    EXPECT_EQ(first.verdict().message, second.verdict().message) << "seed " << seed;
    EXPECT_EQ(first.all().size(), max_suspicions);
  }
}

int culprit_of(std::initializer_list<Suspicion> suspicions) {
  Suspicions all;
  for (const Suspicion& one : suspicions) all.add(one);
  return all.verdict().peer;
}

TEST(Suspicions, WhatIsMoreCertainWeighsMore) {
  EXPECT_EQ(culprit_of({}), -1);
  const Suspicion gone = suspicion(Reason::gone, 5, 1);
  const Suspicion silent = suspicion(Reason::no_answer, 4, 1);
  const Suspicion elsewhere = suspicion(Reason::not_in_call, 3, 1);
  const Suspicion cut = suspicion(Reason::link, 2, 1);
  const Suspicion late = suspicion(Reason::no_answer, 1, 0, 1000, false);
  const Suspicion waits = suspicion(Reason::waits, 0, 1);
  const Suspicion left = suspicion(Reason::left, 6, 2);
  EXPECT_EQ(culprit_of({waits, late, cut, elsewhere, silent, left, gone}), 5);
  EXPECT_EQ(culprit_of({waits, late, cut, elsewhere, silent, left}), 6);
  EXPECT_EQ(culprit_of({waits, late, cut, elsewhere, silent}), 4);
  EXPECT_EQ(culprit_of({waits, late, cut, elsewhere}), 3);
  EXPECT_EQ(culprit_of({waits, late, cut}), 2);
  EXPECT_EQ(culprit_of({waits, late}), 1);
  EXPECT_EQ(culprit_of({waits}), 0);
  // Who was waited for the longest was the first to stop.
  EXPECT_EQ(
      culprit_of({suspicion(Reason::no_answer, 1, 0, 900), suspicion(Reason::no_answer, 7, 3)}), 7);
}

TEST(Suspicions, OneCutOffFromSeveralIsTheOneThatAllNameAndThatNamesAll) {
  EXPECT_EQ(culprit_of({suspicion(Reason::link, 1, 4), suspicion(Reason::link, 4, 2),
                        suspicion(Reason::link, 4, 3)}),
            4);
}

// Neither rank can have ended: each has judged the other.
TEST(Suspicions, TwoRanksThatFindEachOtherGoneHaveABrokenLink) {
  Suspicions all;
  all.add(suspicion(Reason::gone, 0, 1));
  all.add(suspicion(Reason::gone, 1, 0));
  all.add(suspicion(Reason::waits, 2, 3));
  const Error verdict = all.verdict();
  EXPECT_EQ(verdict.reason, Reason::link);
  EXPECT_EQ(std::set({verdict.peer, verdict.finder}), std::set({0, 1}));
  EXPECT_FALSE(verdict.timed_out);
  EXPECT_EQ(verdict.message.find("gone"), std::string::npos) << verdict.message;
  EXPECT_EQ(verdict.message.find("Gone"), std::string::npos) << verdict.message;
  // A rank that ended is still told apart from them.
  all.add(suspicion(Reason::gone, 3, 1));
  EXPECT_EQ(all.verdict().reason, Reason::gone);
  EXPECT_EQ(all.verdict().peer, 3);
}

TEST(Suspicions, ARankThatLeftIsNamedWithTheCallThatNeededIt) {
  Suspicion left = suspicion(Reason::left, 1, 0);
  left.waits.call = 7;
  Suspicions all;
  all.add(left);
  const Error verdict = all.verdict();
  EXPECT_EQ(verdict.message,
            "rank 1 left the communicator (destroyed, or its process ended) while rank 0 still "
            "needed it in call 7");
  EXPECT_EQ(verdict.reason, Reason::left);
  EXPECT_EQ(std::tuple(verdict.peer, verdict.finder, verdict.call), std::tuple(1, 0, 7));
  EXPECT_FALSE(verdict.timed_out);
}

TEST(Suspicions, OnlyReasonsOfRanksThatWaitTravel) {
  for (int number = 0; number < 256; ++number) {
    Suspicions all;
    all.add(suspicion(static_cast<Reason>(number), 1, 0));
    EXPECT_EQ(decode_suspicions(encode(all), 2).ok(),
              fault_row(static_cast<Reason>(number)).can_suspect)
        << number;
  }
}

TEST(Suspicions, TravelWholeAndCutOnesAreRefused) {
  std::mt19937_64 random(11);
  Suspicions all;
  for (int i = 0; i < 20; ++i) {
    Suspicion one = random_suspicion(random, 1000);
    one.text.assign(1000, 'x');
    all.add(one);
  }
  const std::vector<std::byte> bytes = encode(all);
  EXPECT_LE(bytes.size(), max_small_payload_bytes);
  const auto decoded = decode_suspicions(bytes, 1000);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(same(*decoded, all.all()));
  EXPECT_FALSE(decode_suspicions(bytes, 3).ok()) << "ranks that there are not";
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(decode_suspicions(std::span(bytes).first(cut), 1000).ok());
}

TEST(CallReport, TravelsWholeAndIsChecked) {
  const std::vector<std::byte> bytes =
      encode(CallReport{.is_in_call = true,
                        .number = 7,
                        .call = {.what = 0x1234, .number = 7, .plan = 0x5678},
                        .waits = {.what = CallWait::What::send, .peer = 2, .call = 5}});
  const auto decoded = decode_call_report(bytes, 3);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->is_in_call);
  EXPECT_EQ(decoded->number, 7U);
  EXPECT_EQ(decoded->call, (CallId{.what = 0x1234, .number = 7, .plan = 0x5678}));
  EXPECT_EQ(decoded->waits, (CallWait{.what = CallWait::What::send, .peer = 2, .call = 5}));
  EXPECT_FALSE(decoded->has_left);
  EXPECT_FALSE(decode_call_report(bytes, 2).ok());
  EXPECT_TRUE(decode_call_report(encode(CallReport{.has_left = true}), 3)->has_left);
  EXPECT_FALSE(decode_call_report(encode(CallReport{true, true, 7, {}, {}}), 3).ok())
      << "in a call of a communicator that it has left";
  EXPECT_FALSE(decode_call_report(std::span(bytes).first(bytes.size() - 1), 3).ok());
}

constexpr std::int64_t millisecond = 1'000'000;
constexpr std::int64_t second = 1'000 * millisecond;
// All have joined by then, and every call has begun.
constexpr std::int64_t begun_ns = second;
constexpr std::int64_t timeout_ns = 10 * second;
constexpr std::int64_t hang_ns = 120 * second;

// Members that wait for others in a call; some are frozen, dead, or not in the call.
struct Scene {
  int members = 4;
  std::function<std::vector<int>(int)> waits_for;
  std::set<int> silent, dead, absent;
  // Nothing gets through to them over connections for data.
  std::set<int> unreached;
  // When a member's call began; its deadline is timeout_ns later.
  std::function<std::int64_t(int)> began_ns = [](int) { return begun_ns; };
  sys::SimulationOptions options;
};

struct Outcome {
  std::optional<Error> verdict;
  std::int64_t ended_ns = 0;
};

class Cast {
 public:
  explicit Cast(Scene scene)
      : scene_(std::move(scene)),
        simulation_(scene_.options),
        outcomes_(static_cast<std::size_t>(scene_.members)) {
    for (int rank = 0; rank < scene_.members; ++rank) simulation_.add_process(str("host", rank));
    for (const int rank : scene_.silent) kill_at(simulation_, rank, 2 * second, sys::Death::host);
    for (const int rank : scene_.dead) kill_at(simulation_, rank, 2 * second, sys::Death::process);
    for (int rank = 0; rank < scene_.members; ++rank) simulation_.start(rank, run(rank));
  }

  // What each survivor in the call says, all in time; the one culprit that they name.
  int agreed(std::int64_t most_ns) {
    EXPECT_TRUE(simulation_.run(hang_ns));
    std::map<int, int> named;
    for (int rank = 0; rank < scene_.members; ++rank) {
      if (!is_survivor(rank)) continue;
      const Outcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(outcome.verdict.has_value()) << "rank " << rank;
      if (!outcome.verdict) continue;
      EXPECT_LE(outcome.ended_ns, most_ns) << "rank " << rank;
      if (named[outcome.verdict->peer]++ == 0) text_ = outcome.verdict->message;
    }
    EXPECT_EQ(named.size(), 1U);
    return named.empty() ? -1 : named.begin()->first;
  }
  const std::string& text() const { return text_; }

 private:
  bool is_survivor(int rank) const {
    return !scene_.silent.contains(rank) && !scene_.dead.contains(rank) &&
           !scene_.absent.contains(rank);
  }

  Reason seen_of(int peer, bool ended) const {
    if (ended) return Reason::gone;
    return scene_.unreached.contains(peer) ? Reason::link : Reason::unknown;
  }

  sys::Task<void> run(int rank) {
    sys::World& world = simulation_.world(rank);
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = scene_.members;
    options.rendezvous = "tcp://host0:29500";
    options.secret = "a secret";
    const SelfDescription self;
    Result<Joined> joined = co_await join_job(world, std::move(options), self, nullptr);
    if (!joined.ok()) co_return;
    GroupExchange group(joined->node, {joined->node->job(), 0}, comm::Members::all(scene_.members),
                        rank);
    Status met = co_await group.barrier(10 * second);
    if (!met.ok()) co_return;
    if (!scene_.absent.contains(rank)) group.call_state().calls = 1;
    co_await wait_in_call(group, rank);
    // Whoever has its verdict stays for a moment, so that its messages leave.
    sys::Wait pause(world.scheduler(), world.now_ns() + second);
    co_await pause;
  }

  static CallWait wait_of(int rank, int peer) {
    return {.what = CallWait::What::send, .peer = peer, .call = 100 + rank};
  }

  // As Scheduler does.
  sys::Task<void> wait_in_call(GroupExchange& group, int rank) {
    sys::World& world = simulation_.world(rank);
    Inquest mine;
    const std::int64_t began_ns = scene_.began_ns(rank);
    bool is_inquiry = false;
    for (std::int64_t step_ns = 20 * millisecond;;) {
      sys::Wait pause(world.scheduler(), world.now_ns() + step_ns);
      co_await pause;
      const std::int64_t now_ns = world.now_ns();
      std::optional<Error> told;
      if (is_inquiry)
        told = co_await group.inquire(mine);
      else
        told = co_await group.look();
      if (told) {
        group.give_up(*told);
        outcomes_[static_cast<std::size_t>(rank)] = {told, now_ns};
        co_return;
      }
      if (is_inquiry || now_ns < began_ns || scene_.absent.contains(rank)) {
        if (now_ns > hang_ns / 2) co_return;
        continue;
      }
      const bool is_over = now_ns >= began_ns + timeout_ns;
      bool has_ended = false;
      for (const int peer : scene_.waits_for(rank)) {
        // Its connection for data ends as its process does.
        const bool ended = scene_.dead.contains(peer) && now_ns >= 2 * second;
        has_ended |= ended;
        mine.awaited.push_back({.member = peer,
                                .waited_ns = now_ns - began_ns,
                                .is_overdue = 2 * (now_ns - began_ns) >= timeout_ns,
                                .seen = seen_of(peer, ended),
                                .text = str("a message of rank ", peer),
                                .waits = wait_of(rank, peer)});
        group.call_state().waits = pack(mine.awaited.front().waits);
      }
      is_inquiry = is_over || has_ended || group.call_state().is_inquiry_open;
      if (is_inquiry) {
        mine.is_timeout = is_over;
        step_ns = 5 * millisecond;
      } else {
        mine.awaited.clear();
      }
    }
  }

  Scene scene_;
  sys::Simulation simulation_;
  std::vector<Outcome> outcomes_;
  std::string text_;
};

constexpr std::int64_t after_timeout_ns =
    begun_ns + timeout_ns + times_after_timeout.end_ns + 300 * millisecond;

std::function<std::vector<int>(int)> ring(int members) {
  return [members](int rank) { return std::vector{(rank + members - 1) % members}; };
}

std::function<std::vector<int>(int)> random_graph(int members, std::uint64_t seed) {
  return [members, seed](int rank) {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(rank));
    std::vector<int> out;
    for (int i = 0; i < 4; ++i) {
      const int peer = static_cast<int>(random() % static_cast<unsigned>(members));
      if (peer != rank && std::ranges::find(out, peer) == out.end()) out.push_back(peer);
    }
    // All wait for everybody in the end, if by way of others.
    if (std::ranges::find(out, (rank + 1) % members) == out.end())
      out.push_back((rank + 1) % members);
    return out;
  };
}

std::set<int> draw(std::mt19937_64& random, int members, int count) {
  std::set<int> out;
  while (static_cast<int>(out.size()) < count)
    out.insert(static_cast<int>(random() % static_cast<unsigned>(members)));
  return out;
}

// Sanitized, the two largest sizes would take most of the time.
constexpr std::uint64_t seeds = test::is_sanitized ? 6 : 16;
constexpr int members_at(std::uint64_t seed) {
  constexpr int sizes[] = {3, 4, 5, 8, 13, 16, 31, 64};
  return sizes[seed % 8];
}

TEST(SimulatedInquiry, OneFrozenMemberIsNamedByAllWhoeverWaitsForWhom) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = seed % 2 == 0 ? ring(p) : random_graph(p, seed)};
    scene.silent = draw(random, p, 1);
    scene.options.seed = seed;
    // Deadlines a little apart, so that several are first.
    scene.began_ns = [seed](int rank) {
      return begun_ns + (rank * 7919 + static_cast<int>(seed)) % 40 * millisecond;
    };
    Cast members(scene);
    EXPECT_EQ(members.agreed(after_timeout_ns), *scene.silent.begin()) << "seed " << seed;
    EXPECT_NE(members.text().find("does not answer"), std::string::npos) << members.text();
  }
}

// Those that only hear of the inquiry give the first one time to ask whether the member answers.
TEST(SimulatedInquiry, AFrozenMemberThatNothingReachesDoesNotAnswer) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = ring(p)};
    scene.silent = scene.unreached = draw(random, p, 1);
    scene.options.seed = seed;
    const int frozen = *scene.silent.begin();
    // The one that waits for it reaches its deadline first.
    scene.began_ns = [frozen, p](int rank) {
      return rank == (frozen + 1) % p ? begun_ns : begun_ns + 4 * second;
    };
    Cast members(scene);
    EXPECT_EQ(members.agreed(after_timeout_ns), frozen) << "seed " << seed;
    EXPECT_NE(members.text().find("does not answer"), std::string::npos) << members.text();
  }
}

TEST(SimulatedInquiry, AMemberThatAnswersThoughNothingReachesItHasABrokenLink) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = ring(p)};
    scene.unreached = draw(random, p, 1);
    scene.options.seed = seed;
    Cast members(scene);
    EXPECT_EQ(members.agreed(after_timeout_ns), *scene.unreached.begin()) << "seed " << seed;
    EXPECT_NE(members.text().find("though both answer"), std::string::npos) << members.text();
  }
}

TEST(SimulatedInquiry, OfSeveralFrozenMembersAllNameTheSame) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = random_graph(p, seed)};
    scene.silent = draw(random, p, 1 + p / 4);
    scene.options.seed = seed;
    Cast members(scene);
    EXPECT_TRUE(scene.silent.contains(members.agreed(after_timeout_ns))) << "seed " << seed;
  }
}

TEST(SimulatedInquiry, OfDeadMembersAllNameTheSameWithinHalfASecond) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = seed % 2 == 0 ? ring(p) : random_graph(p, seed)};
    scene.dead = draw(random, p, 1 + static_cast<int>(seed % 2) * (p / 4));
    scene.options.seed = seed;
    Cast members(scene);
    EXPECT_TRUE(scene.dead.contains(members.agreed(2 * second + 520 * millisecond)))
        << "seed " << seed;
  }
}

TEST(SimulatedInquiry, AMemberThatAnswersButIsInNoCallIsNamed) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    std::mt19937_64 random(seed);
    Scene scene{.members = p, .waits_for = ring(p)};
    scene.absent = draw(random, p, 1);
    scene.options.seed = seed;
    Cast members(scene);
    EXPECT_EQ(members.agreed(after_timeout_ns), *scene.absent.begin()) << "seed " << seed;
    EXPECT_NE(members.text().find("is not in a call"), std::string::npos) << members.text();
  }
}

// Where one was frozen long ago, another that just computes for longer than the grace is not it.
TEST(SimulatedInquiry, AMemberThatWasNotAwaitedForLongIsNotNamed) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = std::max(members_at(seed), 5);
    Scene scene{.members = p, .waits_for = ring(p)};
    scene.silent = {p - 2};
    scene.absent = {1};
    scene.options.seed = seed;
    scene.began_ns = [](int rank) { return rank == 2 ? begun_ns + 9 * second : begun_ns; };
    Cast members(scene);
    EXPECT_EQ(members.agreed(after_timeout_ns), p - 2) << "seed " << seed;
  }
}

TEST(SimulatedInquiry, OnACycleAllNameTheSame) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const int p = members_at(seed);
    Scene scene{.members = p, .waits_for = random_graph(p, seed)};
    scene.options.seed = seed;
    Cast members(scene);
    EXPECT_GE(members.agreed(after_timeout_ns), 0) << "seed " << seed;
    EXPECT_NE(members.text().find("which itself waits in send to rank "), std::string::npos)
        << members.text();
  }
}

TEST(SimulatedInquiry, OfTwoMembersThatOnlySendToEachOtherNamesBothCalls) {
  Scene scene{.members = 2, .waits_for = ring(2)};
  Cast members(scene);
  const int culprit = members.agreed(after_timeout_ns), finder = 1 - culprit;
  EXPECT_TRUE(members.text().starts_with(
      str("rank ", finder, " waits in send to rank ", culprit, " (call ", 100 + finder,
          "), which itself waits in send to rank ", finder, " (call ", 100 + culprit, ")")))
      << members.text();
}

}  // namespace
}  // namespace unisono::comm
