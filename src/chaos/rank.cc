#include "chaos/rank.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "chaos/data.h"
#include "comm/core.h"

namespace unisono::chaos {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds call_timeout = 200ms;
constexpr std::chrono::nanoseconds bootstrap_timeout = 2s;
// After a deadline ranks ask each other whom to blame; this long at most.
constexpr std::int64_t patience_ns = 4'000'000'000;

// The library in the form that a simulation can afford: no threads or files of the real process,
// and slots so small that messages have many.
const SettingValues settings{{"UNISONO_SPIN", "0"},
                             {"UNISONO_LIVE", "0"},
                             {"UNISONO_ZERO_COPY", "0"},
                             {"UNISONO_RECORD_SLOTS", "64"},
                             {"UNISONO_SIMPLE_SLOT_BYTES", "8192"},
                             {"UNISONO_LL_SLOT_BYTES", "4096"},
                             {"UNISONO_LL128_SLOT_BYTES", "4096"}};

// Whom an error of the group blames, by the number in the job.
int in_job(const Error& error, const Communicator& group) {
  if (!group.valid() || error.peer < 0 || error.peer >= group.size()) return error.peer;
  return group.world_ranks()[static_cast<std::size_t>(error.peer)];
}

int members_index(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

Call call_of(const Operation& operation, int ranks, Buffers& buffers) {
  Call out;
  out.collective = operation.collective;
  out.input = buffers.input.empty() ? nullptr : buffers.input.data();
  out.output = buffers.output.empty() ? nullptr : buffers.output.data();
  out.count = operation.count;
  out.type = operation.type;
  out.operation = operation.operation;
  out.root = operation.root % ranks;
  out.options.algorithm = operation.algorithm;
  return out;
}

}  // namespace

Result<Communicator> Rank::init() {
  InitOptions options;
  options.rank = rank_;
  options.world_size = scenario_.options.ranks;
  options.rendezvous = "tcp://host0:29500";
  options.secret = "the secret of a run of chaos";
  options.node = surroundings_.world->host_identity();
  options.transport = "socket";
  options.timeout = call_timeout;
  options.bootstrap_timeout = bootstrap_timeout;
  options.settings = settings;
  UNISONO_ASSIGN(auto job, comm::Job::join_in(surroundings_, options));
  auto world = job->take_world();
  UNISONO_ASSIGN(auto core, Communicator::Core::make(std::move(job), std::move(world), "world"));
  return Communicator(std::move(core));
}

void Rank::run() {
  Communicator world;
  const bool is_there = judge("init", "initialisation", {}, [&]() -> Status {
    UNISONO_ASSIGN(world, init());
    return {};
  });
  if (is_there) {
    groups_[0].communicator = world;
    for (const Operation& operation : scenario_.operations) {
      if (has_left_) break;
      make(operation);
    }
  }
  witness_.begins(rank_, "destroy", -1);
  for (auto& [number, group] : groups_)
    if (auto status = group.communicator.destroy(); !status.ok())
      witness_.found_wrong(str("rank ", rank_, ": destroy: ", status.error().describe()));
  groups_.clear();
  world = {};
  witness_.saw(rank_, "has ended");
  witness_.ended(rank_);
}

void Rank::make(const Operation& operation) {
  const auto found = groups_.find(operation.group);
  if (operation.kind == Operation::Kind::split) ++splits_;
  number_ = operation.number;
  may_be_refused_ = !operation.algorithm.empty();
  group_ = operation.group;
  if (number_ < resumes_at_ || found == groups_.end() || found->second.is_over) return;
  Group& group = found->second;
  surroundings_.world->sleep(static_cast<std::int64_t>(
      hash(scenario_.seed, operation.number, static_cast<std::uint64_t>(rank_)) % 60'000));
  switch (operation.kind) {
    case Operation::Kind::call:
      return call(operation, group.communicator);
    case Operation::Kind::calls_at_once:
      return calls_at_once(operation, group.communicator);
    case Operation::Kind::messages:
      return messages(operation, group.communicator);
    case Operation::Kind::split:
      return split(operation, group.communicator);
    case Operation::Kind::abort:
      return abort(operation, group);
  }
}

void Rank::call(const Operation& operation, Communicator& group) {
  const std::vector<int> members = group.world_ranks();
  Buffers buffers = make_buffers(operation, 0, members, group.rank());
  if (judge("call", describe(operation), group,
            [&] { return group.run(call_of(operation, group.size(), buffers)); }))
    check(operation, 0, group, buffers);
}

void Rank::calls_at_once(const Operation& operation, Communicator& group) {
  const std::vector<int> members = group.world_ranks();
  std::vector<Buffers> buffers;
  for (int i = 0; i < operation.calls; ++i)
    buffers.push_back(make_buffers(operation, i, members, group.rank()));
  std::vector<Work> works;
  const bool all = judge("submit", describe(operation), group, [&]() -> Status {
    for (Buffers& one : buffers) {
      UNISONO_ASSIGN(Work work, group.submit(call_of(operation, group.size(), one)));
      works.push_back(std::move(work));
    }
    // Another thread than the library's may come to wait late.
    surroundings_.world->sleep(static_cast<std::int64_t>(
        hash(scenario_.seed, operation.number, 77 + static_cast<std::uint64_t>(rank_)) % 100'000));
    for (Work& work : works) UNISONO_TRY(work.wait());
    return {};
  });
  // Buffers stay until no call uses them.
  for (Work& work : works) static_cast<void>(work.wait());
  if (!all) return;
  for (int i = 0; i < operation.calls; ++i)
    check(operation, i, group, buffers[static_cast<std::size_t>(i)]);
}

void Rank::messages(const Operation& operation, Communicator& group) {
  const std::vector<int> members = group.world_ranks();
  const int ranks = group.size();
  const int step = 1 + operation.root % std::max(ranks - 1, 1);
  const int to = (group.rank() + step) % ranks;
  const int from = (group.rank() + ranks - step) % ranks;
  if (ranks == 1) return;
  const std::vector<std::byte> sent = message_of(operation, rank_);
  const std::vector<std::byte> wanted =
      message_of(operation, members[static_cast<std::size_t>(from)]);
  std::vector<std::byte> received(wanted.size(), std::byte{0x5a});
  const std::vector<Message> both{{.is_send = true,
                                   .send_data = sent.data(),
                                   .recv_data = nullptr,
                                   .count = operation.count,
                                   .type = operation.type,
                                   .peer = to,
                                   .tag = operation.root},
                                  {.is_send = false,
                                   .send_data = nullptr,
                                   .recv_data = received.data(),
                                   .count = operation.count,
                                   .type = operation.type,
                                   .peer = from,
                                   .tag = operation.root}};
  Work work;
  const bool is_done = judge("messages", describe(operation), group, [&]() -> Status {
    UNISONO_ASSIGN(work, group.submit(both));
    return work.wait();
  });
  if (is_done && received != wanted)
    witness_.found_wrong(str("rank ", rank_, " received another message than rank ",
                             members[static_cast<std::size_t>(from)],
                             " sent: ", describe(operation)));
}

void Rank::split(const Operation& operation, Communicator& group) {
  const int color = static_cast<int>(
      hash(scenario_.seed, operation.number, 1000 + static_cast<std::uint64_t>(rank_)) %
      static_cast<std::uint64_t>(operation.colors));
  Communicator made;
  if (judge("split", describe(operation), group, [&]() -> Status {
        UNISONO_ASSIGN(made, group.split(color, -rank_));
        return {};
      }))
    groups_[splits_].communicator = std::move(made);
}

void Rank::abort(const Operation& operation, Group& group) {
  if (group.communicator.rank() == operation.root % group.communicator.size()) {
    witness_.begins(rank_, "abort", operation.group);
    witness_.saw(rank_, describe(operation));
    witness_.aborts(rank_);
    group.communicator.abort();
  }
  // The others may meet it in their next call; none need come to another.
  group.is_over = true;
}

bool Rank::judge(std::string_view phase, const std::string& what, const Communicator& group,
                 const std::function<Status()>& act) {
  // What makes communicators is the control plane's, whose waits other calls do not see either.
  const bool is_making = phase == "init" || phase == "split" || phase == "shrink";
  witness_.begins(rank_, phase, is_making ? -1 : group_);
  witness_.saw(rank_, str("begins ", what));
  const std::int64_t still_ns = witness_.stood_still_ns(rank_);
  const std::int64_t begun_ns = now_ns();
  const Status status = act();
  const std::int64_t took_ns = now_ns() - begun_ns - (witness_.stood_still_ns(rank_) - still_ns);
  const std::chrono::nanoseconds timeout = is_making ? 2 * bootstrap_timeout : call_timeout;
  if (took_ns > timeout.count() + patience_ns)
    witness_.found_wrong(str("rank ", rank_, " was held ", took_ns / 1'000'000, " ms by ", what));
  if (status.ok()) {
    witness_.succeeded();
    return true;
  }
  witness_.failed();
  judge_error(status.error(), what, is_making, group);
  if (phase != "shrink") leave_group(status.error(), group);
  return false;
}

void Rank::judge_error(const Error& error, const std::string& what, bool is_making,
                       const Communicator& group) {
  witness_.saw(rank_, str("fails: ", what, ": ", error.describe()));
  // A plan that does not serve this call is refused on all ranks alike.
  if (error.kind == ErrorKind::misuse && may_be_refused_ && !is_making) return;
  const int culprit = in_job(error, group);
  // While communicators are made, not all that are missing need be known.
  if (culprit < 0 && error.timed_out && is_making) return;
  const bool is_untold = error.timed_out && witness_.has_passing_strike();
  if (culprit < 0)
    witness_.found_wrong(str("rank ", rank_, ": an error blames nobody: ", error.describe()));
  else if (!is_untold && !witness_.is_to_blame(culprit, is_making ? -1 : group_))
    witness_.found_wrong(str("rank ", rank_, ": an error blames rank ", culprit,
                             ", to which nothing was done: ", error.describe()));
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
      judge("shrink", "agreement on where to go on", made, agree)) {
    static_cast<void>(all.communicator.destroy());
    all.communicator = std::move(made);
    all.is_over = false;
  } else {
    has_left_ = true;
  }
}

void Rank::check(const Operation& operation, int call, const Communicator& group,
                 const Buffers& buffers) {
  if (const auto wrong = chaos::check(operation, call, group.world_ranks(), group.rank(), buffers))
    witness_.found_wrong(*wrong);
}

}  // namespace unisono::chaos
