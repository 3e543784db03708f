// One rank of a run: it makes the scenario's operations one after another, on the public API, and
// judges each by what it sees.
#pragma once

#include <unisono/communicator.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chaos/canaries.h"
#include "chaos/scenario.h"
#include "chaos/window_memory.h"
#include "comm/job/job.h"

namespace unisono::chaos {

// What all ranks of a run tell to.
class Witness {
 public:
  virtual ~Witness() = default;
  // What the rank is at: the first half of the names of places, and the group, -1 for none. An
  // operation lasts until the next one begins.
  virtual void begins(int rank, std::string_view phase, int group) = 0;
  virtual void saw(int rank, std::string what) = 0;
  virtual void found_wrong(std::string what) = 0;
  virtual void succeeded() = 0;
  virtual void failed() = 0;
  // Whether an error of an operation of `group` may blame that rank: it was struck; or since
  // anything was, or a group was aborted, it has come to its end, or was held up for long in an
  // operation of another group, which members of this one cannot see.
  virtual bool is_to_blame(int rank, int group) const = 0;
  // Whether something has struck that ends by itself, and lasts so long that calls may time out. If
  // it ends between a deadline and the judgement, nobody can tell any more whom it struck.
  virtual bool has_passing_strike() const = 0;
  virtual bool has_struck() const = 0;
  virtual bool is_struck(int rank) const = 0;
  // Something has struck, or a group was aborted, which may hold ranks up for some time.
  virtual bool has_harm() const = 0;
  // A call has waited for its deadline on some rank: that may hold up others as long.
  virtual void timed_out() = 0;
  virtual bool has_timed_out() const = 0;
  // When the rank was killed, so that its connections ended.
  virtual std::optional<std::int64_t> killed_ns(int rank) const = 0;
  // The rank aborts a group: errors may blame it.
  virtual void aborts(int rank) = 0;
  // The rank does not go on with puts that others may wait for.
  virtual void gives_up_puts(int rank) = 0;
  virtual bool has_given_up_puts(int rank) const = 0;
  // The rank has destroyed its communicators, and still has them.
  virtual void destroyed(int rank) = 0;
  // The rank has come to its end.
  virtual void ended(int rank) = 0;
  // How long the rank has been kept from running so far.
  virtual std::int64_t stood_still_ns(int rank) const = 0;
};

// Whom an error of the group blames, by the number in the job.
int in_job(const Error& error, const Communicator& group);

class Rank {
 public:
  Rank(const Scenario& scenario, int rank, comm::Surroundings surroundings, Witness& witness)
      : scenario_(scenario),
        rank_(rank),
        surroundings_(std::move(surroundings)),
        witness_(witness) {}

  void run();
  // Once all ranks have come to their end: whether anything was written that nobody may write.
  void look_at_canaries() const;

 private:
  struct Group {
    Communicator communicator;
    bool is_over = false;
  };

  Result<Communicator> init();
  Status make_network();
  void look_for_left_mail();
  Status destroy(Communicator& communicator);
  void make(const Operation& operation);
  void call(const Operation& operation, Communicator& group);
  void calls_at_once(const Operation& operation, Communicator& group);
  void messages(const Operation& operation, Communicator& group);
  void gets(const Operation& operation, const Communicator& group);
  // A window that it has made, or tried to make.
  struct Opened {
    WindowMemory memory;
    std::uint64_t communicator = 0;
    Window window;
  };
  void windows(const Operation& operation, Group& group);
  void make_wrong_puts(Communicator& group, const Opened& opened);
  Status put_to_all(const Operation& operation, Communicator& group, Opened& opened, int round);
  std::chrono::nanoseconds patience() const;
  Status take(int signal, Communicator& group, const Opened& opened);
  Status check_window(const Operation& operation, Communicator& group, const Opened& opened,
                      int round);
  // Puts a byte to its own window, which must be refused.
  void look_whether_closed(Communicator& group, const Opened& opened, const std::string& when);
  void expect_refusal(const std::string& what, const Status& status, ErrorKind kind);
  void register_plan(Communicator& group);
  void look_for_the_past(const Communicator& group);
  void split(const Operation& operation, Communicator& group);
  void abort(const Operation& operation, Group& group);
  void abort_midway(Operation operation, Group& group);
  // Runs `act` and judges its outcome: the time that it took, and whom it blames. True: it
  // succeeded.
  bool judge(std::string_view phase, const std::string& what, const Communicator& group,
             const std::function<Status()>& act);
  void judge_error(const Error& error, const std::string& what, std::string_view phase,
                   const Communicator& group);
  // Whether a rank that died in sight of everybody was found by its deadline only.
  bool is_overlooked(int culprit) const;
  // It is of no use any more; if it is that of all, the ranks that remain make another.
  void leave_group(const Error& error, const Communicator& group);
  // The ranks that remain make a communicator without the one that is to blame.
  void go_on_without(int culprit);
  void leave_epoch();
  // Whether the seed asks for no second shrink, or it succeeded.
  bool shrink_again(Communicator before, const std::vector<int>& excluded);
  void check(const Operation& operation, int call, const Communicator& group,
             const struct Buffers& buffers);
  void check(const Operation& operation, bool is_right, int sender);
  std::int64_t now_ns() const { return surroundings_.world->now_ns(); }

  const Scenario& scenario_;
  const int rank_;
  const comm::Surroundings surroundings_;
  Witness& witness_;
  std::map<int, Group> groups_;
  std::weak_ptr<comm::ControlNode> node_;
  std::unique_ptr<transport::Transport> network_;
  std::set<std::uint64_t> over_;  // identities of the communicators that it has destroyed
  Canaries canaries_;             // what calls could write to
  std::deque<Opened> windows_;    // others write to it for as long as they like
  std::uint32_t left_epoch_ = 0;  // it is in no older one
  int splits_ = 0;
  std::int64_t begun_ns_ = 0;     // of what it judges
  std::uint64_t number_ = 0;      // of the operation that it is at
  int group_ = 0;                 // likewise
  bool may_be_refused_ = false;   // it names an algorithm, which may not serve it
  std::uint64_t resumes_at_ = 0;  // operations before that number are left out
  bool has_shrunk_ = false;       // and has not left the older epoch yet
  bool has_left_ = false;
};

}  // namespace unisono::chaos
