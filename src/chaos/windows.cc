// A rank puts into the windows of all ranks, looks at those that it can load, gets the others, and
// tries what must be refused.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "chaos/rank.h"

namespace unisono::chaos {
namespace {

// Gets have the same limits. Where something has struck, a rank that waits here must not keep
// others from their calls for long; elsewhere no rank is so late.
constexpr std::chrono::milliseconds harmed_timeout{30};
constexpr std::chrono::milliseconds healthy_timeout{200};

// Each operation has its own two, so that what one that failed has left disturbs no other.
int arrived_signal(const Operation& operation) {
  return static_cast<int>(2 * operation.number) % signals_of_a_pair;
}
int done_signal(const Operation& operation) { return arrived_signal(operation) + 1; }

// In the middle of puts. Of the group of all, an abort would end the run.
bool aborts_midway(const Operation& operation) {
  return operation.group != 0 && operation.calls == 4 && operation.root % 2 == 0;
}

}  // namespace

void Rank::windows(const Operation& operation, Group& known) {
  Communicator group = known.communicator;
  may_be_refused_ = false;
  Opened& opened = windows_.emplace_back(Opened{
      .memory = WindowMemory(operation, group.world_ranks(), group.rank(), scenario_.options.nodes),
      .communicator = group.id(),
      .window = {}});
  const std::string what = describe(operation);
  if (!judge("window", str("a window for ", what), group, [&]() -> Status {
        const auto memory = opened.memory.window();
        UNISONO_ASSIGN(opened.window, group.make_window(memory.data(), memory.size()));
        return {};
      }))
    return;
  witness_.begins(rank_, "puts", -1);
  witness_.saw(rank_, "begins " + what);
  make_wrong_puts(group, opened);
  Status status = put_to_all(operation, group, opened, 0);
  if (aborts_midway(operation) && group.rank() == operation.root % group.size()) {
    witness_.saw(rank_, "aborts in the middle of " + what);
    witness_.aborts(rank_);
    group.abort();
    look_whether_closed(group, opened, "aborted");
  } else if (status.ok()) {
    status = put_to_all(operation, group, opened, 1);
    if (status.ok()) opened.memory.close();
  }
  if (aborts_midway(operation)) known.is_over = true;
  if (status.ok()) return witness_.succeeded();
  witness_.failed();
  // The others do not hear how this wait ended.
  const int culprit = in_job(status.error(), group);
  const bool is_of_another = witness_.has_given_up_puts(culprit);
  // A rank does not miss its own puts, but a failure of the whole group may blame it.
  if (culprit == rank_ && group.failure().ok())
    witness_.found_wrong(
        str("rank ", rank_, " blames itself for its puts: ", status.error().describe()));
  witness_.gives_up_puts(rank_);
  if (is_of_another)
    witness_.saw(rank_, str("fails: ", what, ": ", status.error().describe()));
  else
    judge_error(status.error(), what, "puts", group);
  if (!witness_.has_harm())
    witness_.found_wrong(str("rank ", rank_, ": puts fail: ", status.error().describe()));
}

Status Rank::put_to_all(const Operation& operation, Communicator& group, Opened& opened,
                        int round) {
  const WindowMemory& memory = opened.memory;
  const int me = group.rank();
  const auto parts = static_cast<std::size_t>(operation.calls) - 1;
  for (const int peer : memory.peers()) {
    const std::vector<std::byte> message = memory.message(me, peer, round);
    const std::size_t most = message.size() / parts + 1;
    std::size_t at = 0;
    do {
      const std::size_t bytes = std::min(most, message.size() - at);
      const bool is_last = at + bytes == message.size();
      UNISONO_TRY(
          group.put(opened.window, message.data() + at, bytes, peer, memory.offset_of(me) + at,
                    is_last ? arrived_signal(operation) : no_signal, {.timeout = patience()}));
      at += bytes;
    } while (at < message.size());
  }
  UNISONO_TRY(take(arrived_signal(operation), group, opened));
  UNISONO_TRY(check_window(operation, group, opened, round));
  for (const int peer : memory.peers())
    UNISONO_TRY(group.signal(peer, done_signal(operation), {.timeout = patience()}));
  return take(done_signal(operation), group, opened);
}

std::chrono::nanoseconds Rank::patience() const {
  return witness_.has_harm() ? harmed_timeout : healthy_timeout;
}

Status Rank::take(int signal, Communicator& group, const Opened& opened) {
  std::vector<SignalWait> waits;
  for (const int peer : opened.memory.peers()) waits.push_back({.peer = peer, .signal = signal});
  return group.wait_signals(waits, {.timeout = patience()});
}

Status Rank::check_window(const Operation& operation, Communicator& group, const Opened& opened,
                          int round) {
  const WindowMemory& memory = opened.memory;
  const int me = group.rank();
  for (const int peer : memory.peers()) {
    const int sender = group.world_ranks()[static_cast<std::size_t>(peer)];
    check(operation, std::ranges::equal(memory.slot(peer), memory.message(peer, me, round)),
          sender);
    // The other rank has put this to itself.
    const std::vector<std::byte> own = memory.message(peer, peer, round);
    const auto place = opened.window.pointer(peer, memory.offset_of(peer));
    if (!place.ok() &&
        (peer == me || (memory.is_neighbour(peer) && hosts_share_memory(scenario_.seed))))
      witness_.found_wrong(str("rank ", rank_, " does not reach a window of its own process: ",
                               place.error().describe()));
    std::vector<std::byte> got(own.size());
    UNISONO_TRY(group.get(opened.window, got.data(), got.size(), peer, memory.offset_of(peer),
                          {.timeout = patience()}));
    check(operation, got == own, sender);
    if (place.ok())
      check(operation,
            std::ranges::equal(std::span(static_cast<const std::byte*>(*place), own.size()), own),
            sender);
  }
  return {};
}

void Rank::make_wrong_puts(Communicator& group, const Opened& opened) {
  const WindowMemory& memory = opened.memory;
  const std::byte wrong{};
  const int last = memory.peers().back();
  expect_refusal("a put past the end of a window",
                 group.put(opened.window, &wrong, sizeof wrong, last, memory.bytes_of(last)),
                 ErrorKind::misuse);
  for (const Opened& other : windows_)
    if (other.communicator != group.id() && other.window.bytes() > 0)
      expect_refusal("a put into the window of another communicator",
                     group.put(other.window, &wrong, sizeof wrong, other.window.rank(), 0),
                     ErrorKind::misuse);
}

void Rank::look_whether_closed(Communicator& group, const Opened& opened, const std::string& when) {
  if (!opened.window.valid()) return;
  const std::byte wrong{};
  const std::size_t bytes = std::min(opened.window.bytes(), sizeof wrong);
  expect_refusal(str("a put once its communicator is ", when),
                 group.put(opened.window, &wrong, bytes, opened.window.rank(), 0),
                 ErrorKind::misuse);
}

void Rank::expect_refusal(const std::string& what, const Status& status, ErrorKind kind) {
  if (status.ok())
    witness_.found_wrong(str("rank ", rank_, ": ", what, " is not refused"));
  else if (!witness_.has_harm() && status.error().kind != kind)
    witness_.found_wrong(
        str("rank ", rank_, ": ", what, " ends with another error: ", status.error().describe()));
}

}  // namespace unisono::chaos
