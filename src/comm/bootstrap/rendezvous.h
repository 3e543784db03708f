// Rank 0's part of the bootstrap: it knows who has enrolled, introduces each rank to the next one,
// lets all go together, and says to all what went wrong.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/bootstrap/channel.h"
#include "comm/bootstrap/messages.h"
#include "sys/world.h"

namespace unisono::comm {

class Rendezvous {
 public:
  struct Setup {
    int world_size = 0;
    std::uint64_t job = 0;
    Key job_key{};
    std::string own_address;  // where rank 0 listens; it is enrolled from the start
    std::int64_t deadline_ns = 0;
    std::function<void(const Error&)> on_verdict;
  };
  Rendezvous(sys::World& world, Setup setup);
  ~Rendezvous();

  // Serves one authenticated connection of a rank until that rank is released or told a failure.
  static sys::Task<void> serve(std::shared_ptr<Rendezvous> self, std::unique_ptr<Channel> channel,
                               const Enrolment& enrolment);

  // Rank 0's own calls, as the others make theirs by messages.
  sys::Task<Result<std::string>> next_address();  // of rank 1
  void own_done();
  sys::Task<Status> released();

  // The first one decides; all ranks that have enrolled are told. A timeout while ranks are
  // missing becomes an error that names the missing ranks.
  void report(const Error& error);
  const std::optional<Error>& verdict() const { return verdict_; }
  // Waits until every rank that has enrolled, or is on its way, has been told how it ended; those
  // that do not listen are given up at the deadline.
  sys::Task<void> drain(std::int64_t deadline_ns);

 private:
  struct Member {
    int rank = 0;
    std::string address;
    std::unique_ptr<Channel> channel;
    sys::WaitQueue turn;
    bool is_introduced = false;
    bool is_done = false;
    bool is_told = false;  // the verdict
    bool is_over = false;  // told how it ended, or gone
  };

  // The rank that may enrol, or what is wrong with it.
  Result<Rank> admit(const Enrolment& enrolment, const std::string& from) const;
  sys::Task<void> refuse(Channel& channel);
  Member& enrol(Rank rank, const Enrolment& enrolment, std::unique_ptr<Channel> channel);
  sys::Task<void> write_loop(Member& member);
  sys::Task<void> read_loop(Member& member);
  void wake_all();
  std::string missing_ranks() const;
  bool all_done() const { return done_ == setup_.world_size; }
  // For telling how it ended, which must work when the deadline itself was what ended it.
  std::int64_t tell_deadline_ns() const;

  sys::World& world_;
  const Setup setup_;
  std::vector<std::unique_ptr<Member>> members_;  // by rank; [0] stays empty
  int enrolled_ = 1;
  int done_ = 0;
  int seen_ = 0;        // processes that enrolled or wanted to
  int being_told_ = 0;  // of those, refused ones that are hearing the verdict
  std::optional<Error> verdict_;
  sys::WaitQueue changed_;
  sys::TaskScope readers_;
};

// "3, 5-7": ascending ranks, with runs drawn together.
std::string format_ranks(std::span<const int> ranks);

}  // namespace unisono::comm
