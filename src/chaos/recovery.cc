// What a rank does with a communicator that has failed.
#include <algorithm>
#include <utility>

#include "base/str.h"
#include "base/try.h"
#include "chaos/data.h"
#include "chaos/rank.h"

namespace unisono::chaos {
namespace {

int members_index(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

}  // namespace

// Whom an error of the group blames, by the number in the job.
int in_job(const Error& error, const Communicator& group) {
  if (!group.valid() || error.peer < 0 || error.peer >= group.size()) return error.peer;
  return group.world_ranks()[static_cast<std::size_t>(error.peer)];
}

void Rank::leave_group(const Error& error, const Communicator& group) {
  if ((error.kind == ErrorKind::misuse && may_be_refused_) || !group.valid()) return;
  const auto is_of = [&](auto& known) { return known.second.communicator.id() == group.id(); };
  const auto known = std::ranges::find_if(groups_, is_of);
  if (known == groups_.end()) return;
  if (known->first != 0) {
    known->second.is_over = true;
    return;
  }
  go_on_without(in_job(error, group));
}

void Rank::go_on_without(int culprit) {
  Group& all = groups_[0];
  const std::vector<int> members = all.communicator.world_ranks();
  const int excluded = members_index(members, culprit);
  if (culprit == rank_ || culprit < 0 || excluded == static_cast<int>(members.size()) ||
      members.size() == 2) {
    has_left_ = true;
    return;
  }
  for (auto& [number, group] : groups_)
    if (number != 0) group.is_over = true;
  const Communicator before = all.communicator;
  all.is_over = true;
  Communicator made;
  const std::vector<int> list{excluded};
  const auto shrink = [&]() -> Status {
    Communicator from = before;
    UNISONO_ASSIGN(made, from.shrink(list));
    return {};
  };
  // Some have come further than others.
  const auto agree = [&]() -> Status {
    const std::uint64_t own = number_ + 1;
    return made.all_reduce(&own, &resumes_at_, 1, DataType::uint64, ReduceOperation::max);
  };
  if (judge("shrink", str("shrink without rank ", culprit), before, shrink) &&
      judge("shrink", "agreement on where to go on", made, agree) && shrink_again(before, list)) {
    static_cast<void>(destroy(all.communicator));
    all.communicator = std::move(made);
    all.is_over = false;
    has_shrunk_ = true;
  } else {
    has_left_ = true;
  }
}

// In a call of so many elements that they are under way to the aborter's output when it gives up.
void Rank::abort_midway(Operation operation, Group& group) {
  constexpr std::int64_t most_elements = 6'000;
  operation.count = most_elements - operation.count % 3'000;
  operation.algorithm.clear();
  Communicator of = group.communicator;
  const std::vector<int> members = of.world_ranks();
  Buffers buffers = make_buffers(operation, 0, members, of.rank());
  const Call made = call_of(operation, of.size(), buffers);
  const std::string what = describe(operation) + " in a call";
  if (of.rank() == operation.root % of.size()) {
    witness_.begins(rank_, "abort", operation.group);
    witness_.saw(rank_, what);
    auto work = of.submit(made);
    surroundings_.world->sleep(
        static_cast<std::int64_t>(hash(scenario_.seed, operation.number, 78) % 200'000));
    witness_.aborts(rank_);
    of.abort();
    if (work.ok()) static_cast<void>(work->wait());
  } else if (judge("aborted", "call at the " + what, of, [&] { return of.run(made); })) {
    check(operation, 0, of, buffers);
  }
  canaries_.keep(operation, std::move(buffers.output));
  group.is_over = true;
}

// Once nothing of this rank refers to the old group any more, which is then left.
void Rank::leave_epoch() {
  if (!std::exchange(has_shrunk_, false) || has_left_) return;
  left_epoch_ = 1;
  Communicator& all = groups_[0].communicator;
  const std::int32_t one = 1;
  std::int32_t sum = 0;
  const auto meet = [&] {
    return all.all_reduce(&one, &sum, 1, DataType::int32, ReduceOperation::sum);
  };
  if (judge("shrink", "meeting once the old group is left", all, meet)) {
    look_for_the_past(all);
  } else {
    groups_[0].is_over = true;
    has_left_ = true;
  }
}

// A second shrink to the same ranks is a communicator of its own, beside the first one.
bool Rank::shrink_again(Communicator before, const std::vector<int>& excluded) {
  if (hash(scenario_.seed, 8, 0) % 2 != 0) return true;
  Communicator again;
  std::int32_t sum = 0;
  const auto shrink = [&]() -> Status {
    UNISONO_ASSIGN(again, before.shrink(excluded));
    return {};
  };
  const auto count = [&]() -> Status {
    const std::int32_t one = 1;
    return again.all_reduce(&one, &sum, 1, DataType::int32, ReduceOperation::sum);
  };
  if (!judge("shrink", "second shrink to the same ranks", before, shrink) ||
      !judge("shrink", "call of the second shrink", again, count))
    return false;
  if (sum != again.size())
    witness_.found_wrong(
        str("rank ", rank_, " counts ", sum, " ranks in the second shrink to ", again.size()));
  static_cast<void>(destroy(again));
  return true;
}

}  // namespace unisono::chaos
