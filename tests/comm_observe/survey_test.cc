// Ranks on many hosts are asked from one of them: all that live answer, and the others are named.

#include "comm/observe/survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "comm/control/handshake.h"
#include "support/eventually.h"
#include "support/real_ranks.h"
#include "support/sanitized.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

using sys::Silence;

// No survey may have more. Only one that meets a stopped rank waits for a part of it.
constexpr std::uint32_t patience_ms = most_survey_patience_ms;

SurveyAnswer answered(int rank, int ranks, std::string contents) {
  return {*Rank::among(rank, ranks), {.contents = std::move(contents), .silence = Silence::none}};
}

// A job in which `per_host` ranks are on each host. Each looks at its connections as often as a
// process that makes no call, or never.
class Hosts {
 public:
  Hosts(int ranks, int per_host, std::vector<int> deaf = {}) : ranks_(ranks), per_host_(per_host) {
    auto listener = RendezvousListener::open("127.0.0.1");
    const std::string rendezvous = listener->rendezvous();
    groups_.resize(static_cast<std::size_t>(ranks));
    surveys_.resize(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](int rank) {
      BootstrapOptions options{.rank = rank,
                               .world_size = ranks,
                               .rendezvous = rendezvous,
                               .secret = "the secret of this test",
                               .timeout_ns = 60 * second_ns};
      SelfDescription self;
      self.host = str("host", rank / per_host);
      auto joined =
          rank == 0 ? bootstrap(options, self, std::move(*listener)) : bootstrap(options, self);
      ASSERT_TRUE(joined.ok()) << joined.error().describe();
      serve(rank, *joined);
    });
    for (int rank = 0; rank < ranks; ++rank)
      if (std::ranges::find(deaf, rank) == deaf.end())
        lookers_.emplace_back([this, rank] { look(rank); });
  }
  ~Hosts() {
    is_over_ = true;
    answering_->end();
    for (std::thread& looker : lookers_) looker.join();
    // Threads that answer may hold the last reference to a node for a moment.
    groups_.clear();
  }

  // Its process ends, as far as others see.
  void kill(int rank) {
    surveys_[index(rank)].reset();
    const std::lock_guard lock(mutex_);
    groups_[index(rank)].reset();
  }
  HostSurveys& surveys(int rank) { return *surveys_[index(rank)]; }
  ControlGroup& group(int rank) { return *groups_[index(rank)]; }
  // Before any survey: how long the ranks of each host take to answer. What is to happen meanwhile
  // takes much less.
  void delay(std::chrono::milliseconds each) { answering_->delay = each; }
  // Before any survey: no rank answers until `is_free` returns true.
  void hold(std::function<bool()> is_free) { answering_->is_free = std::move(is_free); }
  // How often the ranks of a host were asked.
  int asked() const { return answering_->asked; }

 private:
  // Threads that answer use this. They may run on for longer than who asked them waits, and than
  // the test.
  struct Answering {
    std::chrono::milliseconds delay{0};
    std::function<bool()> is_free;  // uses what the test has: see end()
    std::atomic<int> asked{0};

    void wait() {
      ++asked;
      std::this_thread::sleep_for(delay);
      test::eventually([this] {
        const std::lock_guard lock(mutex_);
        return is_over_ || !is_free || is_free();
      });
    }
    void end() {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }

   private:
    std::mutex mutex_;
    bool is_over_ = false;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  void serve(int rank, BootstrapResult& joined) {
    ControlGroup& world = *joined.world;
    auto surveys = std::make_shared<HostSurveys>(
        world.world(), world.node(), joined.roster,
        [rank, answering = answering_, ranks = ranks_, per_host = per_host_](const Survey& survey) {
          answering->wait();
          std::vector<SurveyAnswer> out;
          const int first = rank / per_host * per_host;
          for (int one = first; one < std::min(first + per_host, ranks); ++one)
            out.push_back(answered(one, ranks, str("rank ", one, ", ", survey.entries)));
          return out;
        });
    world.world()->post([surveys] { surveys->serve(); });
    surveys_[index(rank)] = std::move(surveys);
    groups_[index(rank)] = std::move(joined.world);
  }
  void look(int rank) {
    while (!is_over_) {
      {
        const std::lock_guard lock(mutex_);
        if (groups_[index(rank)]) static_cast<void>(groups_[index(rank)]->look());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  const int ranks_;
  const int per_host_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HostSurveys>> surveys_;
  std::vector<std::unique_ptr<ControlGroup>> groups_;
  std::vector<std::thread> lookers_;
  const std::shared_ptr<Answering> answering_ = std::make_shared<Answering>();
  std::atomic<bool> is_over_{false};
};

TEST(Survey, BringsTheAnswersOfAllOtherHosts) {
  Hosts hosts(12, 3);
  const auto answers = hosts.surveys(4).ask_others(7, patience_ms);
  ASSERT_EQ(answers.size(), 9U);
  int expected = 0;
  for (const SurveyAnswer& one : answers) {
    if (expected == 3) expected = 6;  // those of the asking rank's host
    EXPECT_EQ(one.rank.number(), expected);
    EXPECT_EQ(one.reply.contents, str("rank ", expected, ", 7")) << one.reply.why;
    ++expected;
  }
}

// 45 hosts: some are asked by others, and the first rank of the last range does not answer.
TEST(Survey, GoesAroundARankThatIsStoppedAndOneThatHasEnded) {
  const int ranks = 45;
  const int stopped = 1;  // asks others
  const int ended = 44;
  Hosts hosts(ranks, 1, {stopped, ended});
  hosts.kill(ended);
  // Two thirds are for the hosts that the stopped one is to ask, before they are asked directly.
  const auto answers = hosts.surveys(0).ask_others(1, test::is_sanitized ? patience_ms : 6000);
  ASSERT_EQ(answers.size(), static_cast<std::size_t>(ranks - 1));
  for (const SurveyAnswer& one : answers) {
    const int rank = one.rank.number();
    const Silence silence = rank == stopped ? Silence::unresponsive
                            : rank == ended ? Silence::dead
                                            : Silence::none;
    EXPECT_EQ(one.reply.silence, silence) << rank << ": " << one.reply.why;
  }
}

TEST(Survey, AsksTheNextRankOfAHostWhoseFirstIsStopped) {
  Hosts hosts(6, 3, {3});
  const auto answers = hosts.surveys(0).ask_others(1, patience_ms);
  ASSERT_EQ(answers.size(), 3U);
  for (const SurveyAnswer& one : answers)
    EXPECT_EQ(one.reply.silence, Silence::none) << one.reply.why;
}

// The rank that was asked says so at once; no other one of its host is asked in its place.
TEST(Survey, AsksASlowHostOnce) {
  constexpr int per_host = 8;
  Hosts hosts(2 * per_host, per_host);
  // Each of them would be asked before the first one answers, at intervals of 250 ms.
  hosts.delay(std::chrono::milliseconds(250 * per_host));
  const auto answers = hosts.surveys(0).ask_others(1, patience_ms);
  ASSERT_EQ(answers.size(), static_cast<std::size_t>(per_host));
  for (const SurveyAnswer& one : answers)
    EXPECT_EQ(one.reply.silence, Silence::none) << one.reply.why;
  // On a busy machine a second one is asked before the first has said that it asks.
  EXPECT_LT(hosts.asked(), per_host);
}

TEST(Survey, NamesAReasonForEveryRankWhereTooManyAreUnderWay) {
  std::atomic<int> refused{0};
  Hosts hosts(4, 1);
  std::vector<std::thread> askers;
  // Those that are answered are under way until one is refused.
  hosts.hold([&] { return refused >= 3; });
  for (int i = 0; i < 8; ++i)
    askers.emplace_back([&] {
      const auto answers = hosts.surveys(0).ask_others(1, patience_ms);
      EXPECT_EQ(answers.size(), 3U);
      for (const SurveyAnswer& one : answers) {
        if (one.reply.silence == Silence::none) continue;
        EXPECT_FALSE(one.reply.why.empty());
        ++refused;
      }
    });
  for (std::thread& asker : askers) asker.join();
  EXPECT_GE(refused, 3);
}

// Five ranks ask at once, and the sixth answers four.
TEST(Survey, WhoAnswersTooManySaysSo) {
  Hosts hosts(6, 1);
  hosts.delay(std::chrono::milliseconds(500));
  std::atomic<int> refused{0};
  const auto ask_from = [&](int rank) {
    for (const SurveyAnswer& one : hosts.surveys(rank).ask_others(1, patience_ms)) {
      if (one.reply.silence == Silence::none) continue;
      const std::string too_many = " makes or answers 4 surveys already";
      const bool is_own = one.reply.why == str("was not asked: rank ", rank, too_many);
      if (is_own) continue;  // it came to its own survey after those of four others
      EXPECT_EQ(one.reply.why, str("cannot be asked: rank ", one.rank.number(), too_many));
      ++refused;
    }
  };
  // They ask again where a busy machine held one up until the others had their answers.
  for (int round = 0; refused == 0 && round < 20; ++round) {
    std::vector<std::thread> askers;
    for (int rank = 0; rank < 5; ++rank) askers.emplace_back(ask_from, rank);
    for (std::thread& asker : askers) asker.join();
  }
  EXPECT_GE(refused, 1);
}

TEST(Survey, TellsNothingToWhoHasAnotherKey) {
  Hosts hosts(2, 1);
  auto world = std::move(*sys::RealWorld::create());
  const std::string* known = hosts.group(0).node()->known_address(1);
  ASSERT_NE(known, nullptr);
  const auto address = *sys::Address::parse(*known);
  auto ask = [&]() -> sys::Task<bool> {
    const std::int64_t until_ns = world->now_ns() + 60 * second_ns;
    auto stream = co_await world->connect(address, until_ns);
    Refusal refusal{};
    auto channel = co_await prove_to_server(*world, std::move(*stream), Purpose::link,
                                            link_key(enrolment_key("another job's")),
                                            hosts.group(0).node()->wire(), until_ns, refusal);
    co_return channel.ok() || refusal != Refusal::secret;
  };
  EXPECT_FALSE(world->run(ask()));
}

TEST(Survey, LeavesOutWhatDoesNotFit) {
  const std::vector<SurveyAnswer> answers{answered(0, 3, "short"),
                                          answered(1, 3, std::string(5000, 'x')),
                                          answered(2, 3, "short, too")};
  const auto bytes = encode(answers, 2000);
  EXPECT_LE(bytes.size(), 2000U);
  const auto decoded = decode_survey_answers(bytes, 3);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->at(0).reply.contents, "short");
  EXPECT_EQ(decoded->at(1).reply.silence, Silence::unresponsive);
  EXPECT_EQ(decoded->at(1).reply.why, "answers, but all answers together are too long");
  EXPECT_EQ(decoded->at(2).reply.contents, "short, too");
}

TEST(Survey, RefusesWhatCannotBe) {
  const auto refused = [](const std::vector<SurveyAnswer>& answers, int ranks) {
    return !decode_survey_answers(encode(answers), ranks).ok();
  };
  EXPECT_FALSE(refused({answered(0, 2, "a"), answered(1, 2, "b")}, 2));
  EXPECT_TRUE(refused({answered(0, 2, "a"), answered(0, 2, "b")}, 2));  // twice
  EXPECT_TRUE(refused({answered(1, 2, "b"), answered(0, 2, "a")}, 2));  // another order
  EXPECT_TRUE(refused({answered(7, 8, "a")}, 2));                       // no such rank
  EXPECT_TRUE(refused({answered(0, 2, "")}, 2));  // neither answer nor silence
  EXPECT_TRUE(decode_survey(encode(Survey{{0, 3}, 1, 1}), 3).ok());
  EXPECT_FALSE(decode_survey(encode(Survey{{0, 4}, 1, 1}), 3).ok());
  EXPECT_FALSE(decode_survey(encode(Survey{{2, 2}, 1, 1}), 3).ok());
  EXPECT_FALSE(decode_survey(encode(Survey{{0, 1}, 1, most_survey_patience_ms + 1}), 3).ok());
}

}  // namespace
}  // namespace unisono::comm
