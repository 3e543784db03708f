#include "engine/gpu/on_copy_engines.h"

#include "base/error.h"
#include "base/fast_clock.h"
#include "base/try.h"

namespace unisono::engine::gpu {
namespace {

// How long a sender's host waits for the receiver's to make the same call, before it goes through
// slots: as long as hosts that keep up with each other are apart, and no more than a large copy
// through slots takes longer.
constexpr std::int64_t patience_ns = 2'000'000;

}  // namespace

Status OnCopyEngines::start(const Arguments& arguments) {
  if (arguments.count < 0) return misuse("count is ", arguments.count, "; it must be 0 or more");
  arguments_ = arguments;
  waiting_ = {};
  is_arranged_ = false;
  queue_.reset();
  return {};
}

Result<bool> OnCopyEngines::poll() {
  progressed_ = false;
  UNISONO_TRY(resources_.engine().failure());
  UNISONO_ASSIGN(bool is_ready, connect());
  if (is_ready) {
    UNISONO_ASSIGN(is_ready, agree());
  }
  if (is_ready && !has_room()) {
    is_ready = false;
    waiting_ = links().waiting();
  }
  if (!is_ready) {
    UNISONO_TRY(resources_.progress());
    return false;
  }
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream());
  UNISONO_ASSIGN(const OpenLaunch scope, resources_.open(stream));
  bool is_complete = false;
  {
    const sys::cuda::Current current(resources_.engine().device());
    if (!queue_) UNISONO_TRY(open_queue());
    UNISONO_ASSIGN(is_complete, enqueue(*queue_));
    UNISONO_TRY(is_complete ? queue_->finish() : queue_->pause());
  }
  UNISONO_TRY(scope->finish());
  if (is_complete) queue_.reset();
  progressed_ = true;
  return is_complete;
}

bool OnCopyEngines::has_room() const {
  if (queue_) return !queue_->is_half_full();
  return is_captured_ || links().commands() < CopyLinks::most_commands;
}

Status OnCopyEngines::open_queue() {
  const CopyLinks::Fork* fork = nullptr;
  if (!rendezvous_.empty()) {
    UNISONO_ASSIGN(fork, links().fork(is_captured_));
  }
  queue_.emplace(resources_.engine().device(), links(),
                 static_cast<sys::cuda::StreamHandle*>(arguments_.stream()), fork, !is_captured_,
                 arguments_.timeout_ns());
  return begin(*queue_);
}

Result<bool> OnCopyEngines::connect() {
  bool complete = true;
  for (Wanted& wanted : wanted_) {
    if (wanted.link != nullptr) continue;
    UNISONO_ASSIGN(
        transport::Connection * connection,
        resources_.link({wanted.peer, wanted.channel, Protocol::simple, links().geometry()}));
    if (connection != nullptr) {
      UNISONO_ASSIGN(wanted.link, links().add(*connection, wanted.channel));
      progressed_ = true;
      continue;
    }
    complete = false;
    waiting_ = {.kind = Waiting::Kind::connection, .peer = wanted.peer, .channel = wanted.channel};
  }
  return complete;
}

int OnCopyEngines::meet(CopyLink& link, bool sends, int parts, std::uint32_t tag,
                        sys::cuda::DeviceAddress wanted) {
  if (link.own_book == nullptr) return -1;
  int on_the_way = parts;
  for (const Rendezvous& other : rendezvous_)
    if (other.flags.link == &link && other.sends == sends) on_the_way += other.flags.parts;
  const bool is_wanted = wanted != 0 && on_the_way <= CopyLinks::zero_copy_flags;
  const CopyRendezvous here{
      .way = is_wanted ? CopyRendezvous::Way::zero_copy : CopyRendezvous::Way::slots, .at = wanted};
  rendezvous_.push_back({.flags = {.link = &link, .parts = parts, .tag = tag},
                         .sends = sends,
                         .decided = here,
                         .number = sends ? ++link.agreed_sends : ++link.agreed_receives});
  return static_cast<int>(rendezvous_.size()) - 1;
}

Result<bool> OnCopyEngines::is_capturing() const {
  int capturing = 0;
  const sys::cuda::Device& device = resources_.engine().device();
  const sys::cuda::Current current(device);
  UNISONO_TRY(
      device.check(device.driver().stream_is_capturing(
                       static_cast<sys::cuda::StreamHandle*>(arguments_.stream()), &capturing),
                   "looking at a stream"));
  return capturing != 0;
}

void OnCopyEngines::find_peer_mappings(sys::cuda::DeviceAddress data, std::size_t bytes,
                                       std::span<sys::cuda::DeviceAddress> by_rank) {
  resources_.find_peer_mappings(reinterpret_cast<const void*>(data), bytes, by_rank, is_captured_);
}

Result<bool> OnCopyEngines::agree() {
  if (!is_arranged_) {
    UNISONO_ASSIGN(is_captured_, is_capturing());
    rendezvous_.clear();
    arrange();
    is_arranged_ = true;
    arranged_ns_ = steady_now_ns();
  }
  bool complete = true;
  for (Rendezvous& rendezvous : rendezvous_) {
    if (rendezvous.is_over) continue;
    UNISONO_TRY(agree(rendezvous));
    progressed_ |= rendezvous.is_over;
    if (rendezvous.is_over) continue;
    complete = false;
    const CopyLink& with = *rendezvous.flags.link;
    waiting_ = {.kind = Waiting::Kind::destination,
                .peer = with.connection->peer(),
                .channel = with.channel,
                .expected = rendezvous.number,
                .got = rendezvous.number - 1};
  }
  return complete;
}

Status OnCopyEngines::agree(Rendezvous& rendezvous) {
  CopyLink& link = *rendezvous.flags.link;
  if (!rendezvous.sends) rendezvous.decided.is_captured = is_captured_;
  const bool waits = steady_now_ns() - arranged_ns_ <
                     (is_captured_ && !link.peer_is_late ? patience_in_captures_ns : patience_ns);
  const CopyRendezvous decided =
      rendezvous.sends ? link.peer_book->sender_arrives(rendezvous.number, waits)
                       : link.own_book->receiver_arrives(rendezvous.number, rendezvous.decided);
  if (decided.way == CopyRendezvous::Way::undecided) return {};
  rendezvous.decided = decided;
  rendezvous.is_over = true;
  if (rendezvous.sends) link.peer_is_late = !waits;
  if (decided.way != CopyRendezvous::Way::zero_copy || decided.is_captured == is_captured_)
    return {};
  return misuse("rank ", link.connection->self(), is_captured_ ? " captures" : " does not capture",
                " a call by the copy engines that rank ", link.connection->peer(),
                is_captured_ ? " does not" : " captures", "; all ranks must capture it, or none");
}

// From here on both ends count zero-copy messages alike.
Status OnCopyEngines::begin(StreamQueue& queue) {
  for (Rendezvous& rendezvous : rendezvous_) {
    if (rendezvous.decided.way != CopyRendezvous::Way::zero_copy) continue;
    StreamQueue::ZeroCopy& flags = rendezvous.flags;
    CopyLink::ZeroCopy& count =
        rendezvous.sends ? flags.link->zero_copy_sent : flags.link->zero_copy_received;
    flags.message = count.messages++;
    flags.first_part = count.parts;
    count.parts += static_cast<unsigned>(flags.parts);
    if (!rendezvous.sends) UNISONO_TRY(queue.want(flags));
  }
  return {};
}

const StreamQueue::ZeroCopy* OnCopyEngines::zero_copy(int which) const {
  if (which < 0) return nullptr;
  const Rendezvous& rendezvous = rendezvous_[static_cast<std::size_t>(which)];
  return rendezvous.decided.way == CopyRendezvous::Way::zero_copy ? &rendezvous.flags : nullptr;
}

}  // namespace unisono::engine::gpu
