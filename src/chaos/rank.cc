#include "chaos/rank.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "chaos/data.h"
#include "comm/control/node.h"
#include "comm/core.h"

namespace unisono::chaos {
namespace {

using namespace std::chrono_literals;

// With less than 4 MB/s between two ranks, four large calls at once, some 800 KB, take longer than
// the short timeout.
bool is_slow(const transport::emulated::NetworkOptions& network) {
  constexpr double least_bytes_per_ns = 0.004;
  return static_cast<double>(network.most_underway_bytes) <
         least_bytes_per_ns * static_cast<double>(network.max_latency_ns);
}

// In some runs so long that deaths are found before, in most so short that timeouts cost few
// events.
std::chrono::nanoseconds call_timeout(const Scenario& scenario) {
  const bool is_long = hash(scenario.seed, 5, 0) % 4 == 0 || is_slow(network_of(scenario.seed));
  return is_long ? 1s : 200ms;
}
constexpr std::chrono::nanoseconds bootstrap_timeout = 2s;
// After a deadline ranks ask each other whom to blame; this long at most.
constexpr std::int64_t patience_ns = 4'000'000'000;
// Who waits for a rank that dies sees within 0.3 s that its connection ends, or that it takes none,
// and all agree 0.45 s later. That may hold up another, whose call fails as long after. Who looks
// at its deadline alone is later: such calls have 1 s, and agreeing takes 1 s then.
constexpr std::int64_t found_dead_ns = 1'800'000'000;

// The library in the form that a simulation can afford: no threads or files of the real process,
// and slots so few and small that messages wait for them.
SettingValues settings_of(const Scenario& scenario) {
  const std::uint64_t drawn = hash(scenario.seed, 6, 0);
  return {{"UNISONO_SPIN", "0"},
          {"UNISONO_LIVE", "0"},
          {"UNISONO_ZERO_COPY", drawn / 16 % 2 == 0 ? "0" : "1"},
          {"UNISONO_ZERO_COPY_MIN_BYTES", "1024"},
          {"UNISONO_RECORD_SLOTS", "64"},
          {"UNISONO_SLOTS", str(8 >> drawn % 3)},
          {"UNISONO_SIMPLE_SLOT_BYTES", str(8192 >> drawn / 4 % 3)},
          {"UNISONO_LL_SLOT_BYTES", "4096"},
          {"UNISONO_LL128_SLOT_BYTES", "4096"}};
}

// Or compares what ranks give, over the control plane as well.
bool makes_communicators(std::string_view phase) {
  return phase == "init" || phase == "split" || phase == "shrink" || phase == "register" ||
         phase == "window";
}

// A message to the rank `step` places on, and that from as far back.
struct Ring {
  std::vector<std::byte> sent;
  std::vector<std::byte> wanted;
  std::vector<std::byte> received;
  std::vector<Message> messages;
  int from = 0;  // by its number in the job
};

std::unique_ptr<Ring> ring_of(const Operation& operation, const Communicator& group) {
  const std::vector<int>& members = group.world_ranks();
  const int ranks = group.size();
  const int step = 1 + operation.root % std::max(ranks - 1, 1);
  const int to = (group.rank() + step) % ranks;
  const int from = (group.rank() + ranks - step) % ranks;
  auto out = std::make_unique<Ring>();
  out->from = members[static_cast<std::size_t>(from)];
  out->sent = message_of(operation, members[static_cast<std::size_t>(group.rank())]);
  out->wanted = message_of(operation, out->from);
  out->received.assign(out->wanted.size(), std::byte{0x5a});
  const Message send{.is_send = true,
                     .send_data = out->sent.data(),
                     .recv_data = nullptr,
                     .count = operation.count,
                     .type = operation.type,
                     .peer = to,
                     .tag = operation.root};
  Message receive = send;
  receive.is_send = false;
  receive.send_data = nullptr;
  receive.recv_data = out->received.data();
  receive.peer = from;
  out->messages = {send, receive};
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
  options.timeout = call_timeout(scenario_);
  options.bootstrap_timeout = bootstrap_timeout;
  options.settings = settings_of(scenario_);
  options.has_signals = has_windows(scenario_.seed);
  UNISONO_ASSIGN(auto job, comm::Job::join_in(surroundings_, options));
  auto world = job->take_world();
  node_ = world->node();
  UNISONO_ASSIGN(auto core, Communicator::Core::make(std::move(job), std::move(world), "world"));
  return Communicator(std::move(core));
}

void Rank::run() {
  Communicator world;
  const bool is_there = judge("init", "initialisation", {}, [&]() -> Status {
    UNISONO_ASSIGN(world, init());
    return make_network();
  });
  if (is_there) {
    // No other handle: a communicator's group is left once the last one is gone.
    groups_[0].communicator = std::move(world);
    register_plan(groups_[0].communicator);
    for (const Operation& operation : scenario_.operations) {
      leave_epoch();
      if (has_left_) break;
      make(operation);
    }
    leave_epoch();
  }
  witness_.begins(rank_, "destroy", -1);
  // The last one is that of all ranks, and has the job's mailbox.
  while (!groups_.empty()) {
    const auto last = std::prev(groups_.end());
    if (last->first == 0) look_for_left_mail();
    if (auto status = destroy(last->second.communicator); !status.ok())
      witness_.found_wrong(str("rank ", rank_, ": destroy: ", status.error().describe()));
    groups_.erase(last);
  }
  witness_.destroyed(rank_);
  world = {};
  witness_.saw(rank_, "has ended");
  witness_.ended(rank_);
}

void Rank::look_at_canaries() const {
  if (const auto wrong = canaries_.find_touched())
    witness_.found_wrong(str("rank ", rank_, ": ", *wrong));
  for (const Opened& opened : windows_)
    if (const auto wrong = opened.memory.find_touched())
      witness_.found_wrong(str("rank ", rank_, ": ", *wrong));
}

Status Rank::destroy(Communicator& communicator) {
  if (!communicator.valid()) return {};
  over_.insert(communicator.id());
  UNISONO_TRY(communicator.destroy());
  for (const Opened& opened : windows_)
    if (opened.communicator == communicator.id())
      look_whether_closed(communicator, opened, "destroyed");
  return {};
}

// Judged by what this rank has destroyed, too, not only by what the library takes for over.
void Rank::look_for_left_mail() {
  const auto node = node_.lock();
  if (!node) return;
  for (const comm::MessageKey& key : node->unclaimed())
    if (node->is_retired(key) || over_.contains(key.communicator) || key.epoch < left_epoch_)
      witness_.found_wrong(str("rank ", rank_, " keeps messages of communicator ", key.communicator,
                               " (epoch ", key.epoch, "), which is over"));
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
    case Operation::Kind::gets:
      return gets(operation, group.communicator);
    case Operation::Kind::windows:
      return windows(operation, group);
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
  canaries_.keep(operation, std::move(buffers.output));
}

void Rank::calls_at_once(const Operation& operation, Communicator& group) {
  const std::vector<int> members = group.world_ranks();
  std::vector<Buffers> buffers;
  for (int i = 0; i < operation.calls; ++i)
    buffers.push_back(make_buffers(operation, i, members, group.rank()));
  // Before one of the calls, or none.
  const int rings_at = group.size() > 1 ? operation.root % (2 * operation.calls) : -1;
  const std::unique_ptr<Ring> ring =
      rings_at < operation.calls && rings_at >= 0 ? ring_of(operation, group) : nullptr;
  std::vector<Work> works;
  const bool all = judge("submit", describe(operation), group, [&]() -> Status {
    for (int i = 0; i < operation.calls; ++i) {
      if (ring && i == rings_at) {
        UNISONO_ASSIGN(Work work, group.submit(ring->messages));
        works.push_back(std::move(work));
      }
      Buffers& one = buffers[static_cast<std::size_t>(i)];
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
  if (all && ring) check(operation, ring->received == ring->wanted, ring->from);
  for (int i = 0; all && i < operation.calls; ++i)
    check(operation, i, group, buffers[static_cast<std::size_t>(i)]);
  for (Buffers& one : buffers) canaries_.keep(operation, std::move(one.output));
  if (ring) canaries_.keep(operation, std::move(ring->received));
}

void Rank::messages(const Operation& operation, Communicator& group) {
  if (group.size() == 1) return;
  const std::unique_ptr<Ring> ring = ring_of(operation, group);
  Work work;
  if (judge("messages", describe(operation), group, [&]() -> Status {
        UNISONO_ASSIGN(work, group.submit(ring->messages));
        return work.wait();
      }))
    check(operation, ring->received == ring->wanted, ring->from);
  canaries_.keep(operation, std::move(ring->received));
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

// The others are in a call, or come to one, that the aborter never makes.
void Rank::abort(const Operation& operation, Group& group) {
  if (operation.calls % 2 == 0) return abort_midway(operation, group);
  Communicator of = group.communicator;
  const int aborter = operation.root % of.size();
  if (of.rank() == aborter) {
    witness_.begins(rank_, "abort", operation.group);
    witness_.saw(rank_, describe(operation));
    witness_.aborts(rank_);
    of.abort();
  } else {
    const std::string what = describe(operation);
    const std::int32_t mine = 1;
    std::int32_t sum = 0;
    if (judge("aborted", "call at the " + what, of,
              [&] { return of.all_reduce(&mine, &sum, 1, DataType::int32, ReduceOperation::sum); }))
      witness_.found_wrong(str("rank ", rank_, " succeeded in a call that was never made by rank ",
                               of.world_ranks()[static_cast<std::size_t>(aborter)], ": ", what));
  }
  group.is_over = true;
}

bool Rank::judge(std::string_view phase, const std::string& what, const Communicator& group,
                 const std::function<Status()>& act) {
  // What makes communicators is the control plane's, whose waits other calls do not see either.
  const bool is_making = makes_communicators(phase);
  witness_.begins(rank_, phase, is_making ? -1 : group_);
  witness_.saw(rank_, str("begins ", what));
  const std::int64_t still_ns = witness_.stood_still_ns(rank_);
  begun_ns_ = now_ns();
  const Status status = act();
  const std::int64_t took_ns = now_ns() - begun_ns_ - (witness_.stood_still_ns(rank_) - still_ns);
  const std::chrono::nanoseconds timeout =
      is_making ? 2 * bootstrap_timeout : call_timeout(scenario_);
  if (took_ns > timeout.count() + patience_ns)
    witness_.found_wrong(str("rank ", rank_, " was held ", took_ns / 1'000'000, " ms by ", what));
  if (status.ok()) {
    witness_.succeeded();
    return true;
  }
  witness_.failed();
  judge_error(status.error(), what, phase, group);
  // An abort of what a split makes may overtake members in it; their parent is not over. If it were
  // the parent's, the next call there tells.
  const bool is_of_child = phase == "split" && status.error().aborted;
  if (phase != "shrink" && !is_of_child) leave_group(status.error(), group);
  return false;
}

void Rank::judge_error(const Error& error, const std::string& what, std::string_view phase,
                       const Communicator& group) {
  const bool is_making = makes_communicators(phase);
  witness_.saw(rank_, str("fails: ", what, ": ", error.describe()));
  if (error.timed_out) witness_.timed_out();
  // A plan that does not serve this call is refused on all ranks alike.
  if (error.kind == ErrorKind::misuse && may_be_refused_ && !is_making) return;
  const int culprit = in_job(error, group);
  // While communicators are made, not all that are missing need be known.
  if (culprit < 0 && error.timed_out && is_making) return;
  const bool is_untold = error.timed_out && witness_.has_passing_strike();
  const auto is_wrong = [&](const std::string& why) {
    witness_.found_wrong(str("rank ", rank_, ": an error ", why, ": ", error.describe()));
  };
  if (culprit < 0)
    is_wrong("blames nobody");
  else if (!is_untold && !witness_.is_to_blame(culprit, is_making ? -1 : group_))
    is_wrong(str("blames rank ", culprit, ", to which nothing was done"));
  else if (phase == "aborted" && !error.aborted && !witness_.has_struck())
    is_wrong("does not say that the group was aborted");
  else if (!is_making && is_overlooked(culprit))
    is_wrong(str("overlooks until the deadline that rank ", culprit, " has died"));
}

bool Rank::is_overlooked(int culprit) const {
  const auto killed_ns = witness_.killed_ns(culprit);
  return killed_ns && !witness_.has_timed_out() &&
         now_ns() - std::max(*killed_ns, begun_ns_) > found_dead_ns;
}

void Rank::check(const Operation& operation, int call, const Communicator& group,
                 const Buffers& buffers) {
  if (const auto wrong = chaos::check(operation, call, group.world_ranks(), group.rank(), buffers))
    witness_.found_wrong(*wrong);
}

void Rank::check(const Operation& operation, bool is_right, int sender) {
  if (!is_right)
    witness_.found_wrong(str("rank ", rank_, " received another message than rank ", sender,
                             " sent: ", describe(operation)));
}

}  // namespace unisono::chaos
