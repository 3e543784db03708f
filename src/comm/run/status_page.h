// Who has joined which call, who gave up and who left: a page of shared memory for each node of a
// communicator, on which every rank stores how many collectives it has started, what the last of
// them are, its failure, and that it has left.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fixed_text.h"
#include "comm/blame/kept_calls.h"
#include "comm/run/kept_launches.h"
#include "sys/exit.h"
#include "sys/process.h"
#include "sys/world.h"
#include "transport/transport.h"

namespace unisono::comm {

class StatusPage {
 public:
  // `neighbours` are the ranks on this rank's node, in order, this one among them. `name` is the
  // same for these and for no other communicator. Where shared memory cannot be had, only this rank
  // is known.
  // `rank` and its neighbours are of a communicator of `ranks`.
  StatusPage(sys::World& world, const std::string& name, int rank, std::vector<int> neighbours,
             int ranks);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  // Once all neighbours have made theirs: removes the name, so that nothing is left behind.
  void all_have_joined();

  // This rank makes no more calls: it is no failure when its process ends now. A process that exits
  // in order says so for all its ranks. Any thread.
  enum class Departure : std::uint32_t { none, exit, destroyed };
  void leave(Departure how);
  // An error that names a neighbour whose process has ended before it left in a way that counts: an
  // exit in order does where no call is open. After all_have_joined(); one thread at a time.
  std::optional<Error> died(Departure least);

  // This rank has started a collective. They are counted here, because ranks number their calls
  // differently where some send messages and others do not. Relaxed, as in absent(): the numbers
  // are compared with each other only, long after they were stored.
  // Returns how many it has started before.
  std::uint64_t joined() {
    const std::uint64_t before = started();
    own_line_->started.store(before + 1, std::memory_order_relaxed);
    return before;
  }
  std::uint64_t started() const { return own_line_->started.load(std::memory_order_relaxed); }
  // The collective that this rank started last is that call.
  void shows(const CallId& call) { own_line_->kept.show(call); }
  // What it has shown, for as long as that is wanted.
  std::shared_ptr<const KeptCalls> kept_calls() const;
  // Neighbours known not to have started the collective that this rank started last, in order.
  std::vector<int> absent() const;
  // Whether a neighbour is in a collective that this rank has not started.
  bool is_awaited() const {
    return any_whose_line([](int) { return true; },
                          [own = started()](const Line& line) {
                            return line.started.load(std::memory_order_relaxed) > own;
                          });
  }
  // A neighbour whose collective of the same number as one of this rank's last is another.
  struct OtherCall {
    int rank = -1;
    CallId theirs;
    CallId ours;
  };
  std::optional<OtherCall> other_call() const;
  // The collectives that this rank's streams are at.
  void shows_launched(std::span<const CallId> calls) { own_line_->launches.show(calls); }
  // This rank has captured a collective, and counts it once, however often a graph runs it.
  void captures() { own_line_->captures.store(true, std::memory_order_relaxed); }
  // A neighbour whose collective of the same number as `ours`, which is on a stream, is another: on
  // a stream of its own, or in host memory. Ranks that have captured are not compared. Relaxed, as
  // in absent().
  std::optional<OtherCall> other_launched(const CallId& ours) const;
  // Whether other_call() compares that rank's calls.
  bool has_line(int rank) const;
  // This rank runs on that processor; on none while it gives it to others. Relaxed, as in
  // any_at_rest(): a guess at where ranks are.
  void runs_on(int processor) {
    processor_ = processor;
    own_line_->processor.store(processor + 1, std::memory_order_relaxed);
  }
  void rests() { own_line_->processor.store(0, std::memory_order_relaxed); }
  // Whether `matches(rank)` for a neighbour that does not run on another processor than this rank.
  template <class Matches>
  bool any_at_rest(Matches matches) const {
    return any_whose_line(matches, [this](const Line& line) {
      const int processor = line.processor.load(std::memory_order_relaxed) - 1;
      return processor < 0 || processor == processor_;
    });
  }
  // Whether `matches(rank)` for a neighbour that does something else: it has not started the
  // collective that this rank started last, and does not rest either. As above.
  template <class Matches>
  bool any_elsewhere(Matches matches) const {
    return any_whose_line(matches, [own = started()](const Line& line) {
      return line.started.load(std::memory_order_relaxed) < own &&
             line.processor.load(std::memory_order_relaxed) != 0;
    });
  }
  // This rank gives up for that fault, which `why` explains. Once; any thread.
  void give_up(const transport::Fault& fault, const Error& why);
  // What a neighbour that gave up told: connections tell it too, but not those that were never
  // made.
  std::optional<Error> told() const;
  // How many ranks have a line, this one among them; 1 where there is no shared memory.
  std::size_t ranks() const { return memory_ ? neighbours_.size() : 1; }
  std::size_t memory_bytes() const;

 private:
  // One of a rank. Every collective stores to its first two cache lines.
  struct alignas(64) Line {
    std::atomic<std::uint64_t> started{0};  // collectives
    std::atomic<std::uint64_t> fault{0};    // packed; 0: none
    std::atomic<int> processor{0};          // that it was last seen on, plus 1; 0: none
    KeptCalls kept;
    KeptLaunches launches;
    std::atomic<bool> captures{false};
    FixedText<448> why;  // of the fault; as are the next three
    FailureReason reason = FailureReason::unknown;
    int finder = -1;
    std::int64_t call = -1;
    sys::ProcessIdentity process;
    std::atomic<Departure> departure{Departure::none};
  };
  Line& line_of(std::size_t neighbour) const;
  Error ended_process(std::size_t neighbour) const;
  // Whether there is a neighbour of whose line `says(line)` and of whose rank `matches(rank)`.
  template <class Matches, class Says>
  bool any_whose_line(Matches matches, Says says) const {
    for (std::size_t i = 0; i < neighbours_.size(); ++i)
      if (i != own_ && says(line_of(i)) && matches(neighbours_[i])) return true;
    return false;
  }

  std::vector<int> neighbours_;
  int ranks_;
  std::size_t own_ = 0;  // this rank's place among them
  std::string name_;
  sys::World& world_;
  std::shared_ptr<std::byte> memory_;  // null: only this rank is known
  // Stands for the page where there is none.
  std::shared_ptr<Line> lonely_ = std::make_shared<Line>();
  Line* own_line_ = lonely_.get();
  // Watches the neighbours once somebody asks; a neighbour in this process is not watched.
  std::vector<sys::ProcessWatch> watches_;
  std::optional<sys::AtExit> at_exit_;
  int processor_ = -1;  // what its line shows
};

}  // namespace unisono::comm
