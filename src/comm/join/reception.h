// How a rank receives those below it in the tree who join the job: its children enrol and stay,
// linked to it; others visit it, and are sent on towards their parent; all are told when the job
// has failed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/control/node.h"
#include "comm/control/tree.h"

namespace unisono::comm {

class Reception {
 public:
  // `report` hears of a rank that cannot be right, and makes the job fail.
  Reception(ControlNode& node, TreePlace place, std::function<void(const Error&)> report);

  // Serves one authenticated connection until its rank is linked, or told a failure.
  static sys::Task<void> serve(std::shared_ptr<Reception> self, std::unique_ptr<Channel> channel,
                               Enrolment enrolment);

  // Where a visitor goes on. It waits here until the next rank on its way has come, if not too many
  // do. A child of rank 0 knows the way to the other ones, too.
  static sys::Task<Directions> direct(std::shared_ptr<Reception> self, Visitor visitor);

  void report(const Error& error) { report_(error); }
  // Nobody hears of reports any more.
  void close() {
    report_ = [](const Error&) {};
  }
  // Who comes from now on is told this, and who waits.
  void fail(const Error& error);
  // Waits until those below who have not come yet have been told; at most until the deadline.
  sys::Task<void> drain(std::int64_t deadline_ns);

  bool has_come(int rank) const { return has_come_[index(rank)]; }
  // Its whole subtree has.
  void all_have_come(const RankRange& child);
  // Of the range, who has not.
  std::vector<RankRange> missing(const RankRange& range) const;

 private:
  std::size_t index(int rank) const {
    return static_cast<std::size_t>(rank - place_.subtree().first);
  }
  // What is wrong with who comes.
  Status admit(const Enrolment& enrolment, const std::string& from) const;
  // Whom a visitor asks next; nothing if it has no business here but to be told so.
  std::optional<int> next_for(const Visitor& visitor) const;
  const std::string* address_of(int next);
  sys::Task<void> refuse(Channel& channel);
  sys::Task<void> accept(std::unique_ptr<Channel> channel, const Enrolment& enrolment);

  ControlNode& node_;
  const TreePlace place_;
  std::function<void(const Error&)> report_;
  std::vector<bool> has_come_;           // by place in the subtree
  std::map<int, std::string> children_;  // that have enrolled, and where they listen
  int being_told_ = 0;
  std::set<int> told_to_enrol_;  // who have not enrolled yet
  int waiting_ = 0;              // to be sent on
  std::optional<Error> failure_;
};

// "3, 5-7": ascending ranges.
std::string format_ranks(std::span<const RankRange> ranges);
int count_of(std::span<const RankRange> ranges);

}  // namespace unisono::comm
