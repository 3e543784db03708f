#include "comm/bootstrap/rendezvous.h"

#include <algorithm>

#include "base/error.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t tell_timeout_ns = 2'000'000'000;

}  // namespace

std::string format_ranks(std::span<const int> ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!out.empty()) out += ", ";
    if (out.size() > max_error_text_bytes / 2) return out + str("and more (", ranks.size(), ")");
    append(out, ranks[i]);
    if (end - i > 1) out += str(end - i == 2 ? ", " : "-", ranks[end - 1]);
    i = end;
  }
  return out;
}

Rendezvous::Rendezvous(sys::World& world, Setup setup)
    : world_(world),
      setup_(std::move(setup)),
      members_(static_cast<std::size_t>(setup_.world_size)) {}

Rendezvous::~Rendezvous() { readers_.cancel_all(); }

Result<Rank> Rendezvous::admit(const Enrolment& enrolment, const std::string& from) const {
  const auto rank = Rank::among(enrolment.rank, setup_.world_size);
  const auto blame = [&](Error error) {
    error.peer = rank ? rank->number() : -1;
    return error;
  };
  if (enrolment.world_size != static_cast<std::uint32_t>(setup_.world_size))
    return blame(misuse("the world size differs: rank ", enrolment.rank, " at ", from,
                        " was started with ", enrolment.world_size, " ranks, rank 0 with ",
                        setup_.world_size));
  if (!rank || rank->number() == 0)
    return blame(misuse("a process at ", from, " enrolled as rank ", enrolment.rank,
                        rank ? ", which is the rendezvous itself: two processes have rank 0"
                             : str("; ranks are 0 to ", setup_.world_size - 1)));
  if (const auto& member = members_[rank->index()])
    return blame(misuse("two processes joined as rank ", rank->number(), ": one listens at ",
                        member->address, ", the other at ", enrolment.address));
  return *rank;
}

std::int64_t Rendezvous::tell_deadline_ns() const {
  return std::max(setup_.deadline_ns, world_.now_ns() + tell_timeout_ns);
}

sys::Task<void> Rendezvous::serve(std::shared_ptr<Rendezvous> self,
                                  std::unique_ptr<Channel> channel, const Enrolment& enrolment) {
  ++self->seen_;
  Result<Rank> admitted = self->admit(enrolment, channel->peer_address().text());
  if (!admitted.ok()) self->report(admitted.error());
  if (self->verdict_) {
    ++self->being_told_;
    co_await self->refuse(*channel);
    --self->being_told_;
  } else if (admitted.ok()) {
    Member& member = self->enrol(*admitted, enrolment, std::move(channel));
    self->readers_.spawn(self->read_loop(member));
    co_await self->write_loop(member);
    member.is_over = true;
  }
  self->changed_.notify_all();
}

sys::Task<void> Rendezvous::refuse(Channel& channel) {
  const std::vector<std::byte> payload = encode_failure(*verdict_);
  const MessageKey no_key;
  Status told = co_await channel.write(FrameKind::failure, no_key, payload, tell_deadline_ns());
  // The other side closes once it has read; closing first could take the message back.
  if (told.ok()) co_await channel.wait_for_end(tell_deadline_ns());
}

Rendezvous::Member& Rendezvous::enrol(Rank rank, const Enrolment& enrolment,
                                      std::unique_ptr<Channel> channel) {
  auto& member = members_[rank.index()];
  member = std::make_unique<Member>();
  member->rank = rank.number();
  member->address = enrolment.address;
  member->channel = std::move(channel);
  ++enrolled_;
  if (const auto& previous = members_[rank.index() - 1]) previous->turn.notify_all();
  changed_.notify_all();
  return *member;
}

sys::Task<void> Rendezvous::write_loop(Member& member) {
  const auto next = static_cast<std::size_t>((member.rank + 1) % setup_.world_size);
  const MessageKey no_key;
  std::vector<std::byte> payload;
  while (!member.is_over) {
    FrameKind kind = FrameKind::message;  // none is due
    if (verdict_ && !member.is_told) {
      kind = FrameKind::failure;
      payload = encode_failure(*verdict_);
      member.is_told = true;  // read_loop ends this member's time when it has closed its side
    } else if (all_done()) {
      kind = FrameKind::release;
      payload.clear();
    } else if (!verdict_ && !member.is_introduced && (next == 0 || members_[next])) {
      kind = FrameKind::introduce;
      payload = encode(Introduction{setup_.job, member.channel->wrap(setup_.job_key),
                                    next == 0 ? setup_.own_address : members_[next]->address});
      member.is_introduced = true;
    }
    if (kind == FrameKind::message) {
      sys::Wait wait(world_.scheduler(), member.turn, sys::no_deadline_ns);
      co_await wait;
      continue;
    }
    Status told = co_await member.channel->write(kind, no_key, payload, tell_deadline_ns());
    if (!told.ok() || kind == FrameKind::release) co_return;
  }
}

sys::Task<void> Rendezvous::read_loop(Member& member) {
  for (;;) {
    Result<Frame> frame = co_await member.channel->read(0, sys::no_deadline_ns);
    if (!frame.ok()) {
      report(peer_error(member.rank, "rank ", member.rank, " left before all ranks had connected (",
                        frame.error().message, ")"));
      member.is_over = true;
      member.turn.notify_all();
      changed_.notify_all();
      co_return;
    }
    if (frame->header.kind == FrameKind::failure) {
      const Result<ToldFailure> told = decode_failure(frame->payload, setup_.world_size);
      report(told.ok() ? told.value().error
                       : peer_error(member.rank, "rank ", member.rank, ": ", told.error().message));
    } else if (frame->header.kind == FrameKind::done && !member.is_done) {
      member.is_done = true;
      own_done();
    } else {
      report(peer_error(member.rank, "rank ", member.rank, " sent frame kind ",
                        static_cast<int>(frame->header.kind),
                        ", which was not expected here; is it another version of unisono?"));
    }
  }
}

void Rendezvous::own_done() {
  if (++done_ == setup_.world_size) wake_all();
}

void Rendezvous::wake_all() {
  for (const auto& member : members_)
    if (member) member->turn.notify_all();
  changed_.notify_all();
}

std::string Rendezvous::missing_ranks() const {
  std::vector<int> missing;
  for (int rank = 1; rank < setup_.world_size; ++rank)
    if (!members_[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  return format_ranks(missing);
}

void Rendezvous::report(const Error& error) {
  if (verdict_ || all_done()) return;
  verdict_ = error;
  if (error.timed_out && enrolled_ < setup_.world_size) {
    const int missing = setup_.world_size - enrolled_;
    int first = 1;
    while (members_[static_cast<std::size_t>(first)]) ++first;
    verdict_ =
        timeout_error(first, missing, " of ", setup_.world_size,
                      " ranks did not reach the rendezvous in time; missing: ", missing_ranks());
  }
  setup_.on_verdict(*verdict_);
  wake_all();
}

sys::Task<Result<std::string>> Rendezvous::next_address() {
  for (;;) {
    if (verdict_) co_return *verdict_;
    if (members_[1]) co_return members_[1]->address;
    sys::Wait wait(world_.scheduler(), changed_, setup_.deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(1, "rank 1 did not reach the rendezvous in time");
  }
}

sys::Task<Status> Rendezvous::released() {
  for (;;) {
    if (verdict_) co_return *verdict_;
    if (all_done()) co_return Status();
    sys::Wait wait(world_.scheduler(), changed_, setup_.deadline_ns);
    const bool notified = co_await wait;
    if (!notified) {
      std::vector<int> unready;
      for (const auto& member : members_)
        if (member && !member->is_done) unready.push_back(member->rank);
      co_return timeout_error(unready.empty() ? -1 : unready.front(),
                              "did not finish the bootstrap in time: ranks ",
                              format_ranks(unready));
    }
  }
}

sys::Task<void> Rendezvous::drain(std::int64_t deadline_ns) {
  const auto is_drained = [this] {
    if (being_told_ > 0) return false;
    // Ranks on their way shall hear it too, unless it is that they did not come.
    if (verdict_ && !verdict_->timed_out && seen_ < setup_.world_size - 1) return false;
    for (const auto& member : members_)
      if (member && !member->is_over) return false;
    return true;
  };
  while (!is_drained()) {
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return;
  }
}

}  // namespace unisono::comm
