#include "comm/bootstrap/node.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/bootstrap/directory.h"
#include "sys/tcp_socket.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
// For what follows the proof, from who has the secret.
constexpr std::int64_t first_frame_timeout_ns = 10 * second_ns;
constexpr std::int64_t connect_timeout_ns = 10 * second_ns;
constexpr std::int64_t pause_ns = second_ns / 10;
// Connections that have proved nothing; the oldest makes room for one more. Ranks that join spread
// their coming (Joining::reach), and those that are dropped come again.
constexpr std::size_t most_waiting = 256;
// Attempts to reach a rank whose listener is known to have been there; with doubling pauses from
// 20 ms the last follows 620 ms after the first.
constexpr int connect_attempts = 6;
constexpr std::int64_t first_pause_ns = 20'000'000;
constexpr std::string_view has_left = "it has left the job";
// A descriptor may soon be free again.
constexpr std::int64_t starved_after_ns = 2'000'000'000;

}  // namespace

Error own_limit(int rank, const Error& why) {
  Error error = environment_error("rank ", rank, " cannot open more connections: ", why.message);
  error.peer = rank;
  return error;
}

ControlNode::ControlNode(sys::World& world, int rank, int world_size, const WireProtection& wire)
    : world_(world),
      rank_(rank),
      world_size_(world_size),
      wire_(wire),
      max_message_bytes_(
          max_table_bytes(static_cast<std::size_t>(world_size), max_exchange_bytes)) {}

ControlNode::~ControlNode() {
  for (const auto& link : links_)
    if (!link->is_lost && !link->is_being_written) link->channel->say_bye();
  tasks_.cancel_all();
  erase(job_key_);
}

Status ControlNode::start(std::unique_ptr<sys::Listener> listener,
                          std::optional<Enrolments> enrolments) {
  UNISONO_ASSIGN(doorkeeper_, Doorkeeper::make(world_, wire_, most_waiting));
  listener_ = std::move(listener);
  enrolments_ = std::move(enrolments);
  if (enrolments_) doorkeeper_->admit(Purpose::enrolment, enrolments_->key);
  accept_if_ready();
  return {};
}

void ControlNode::set_job(std::uint64_t job, const Key& key) {
  job_ = job;
  job_key_ = key;
  accept_if_ready();
  changed_.notify_all();
}

// Until there is a key that somebody can prove, connections wait in the kernel.
void ControlNode::accept_if_ready() {
  if (doorkeeper_ == nullptr || (job_ == 0 && !enrolments_)) return;
  if (job_ != 0) doorkeeper_->admit(Purpose::link, link_key(job_key_));
  if (std::exchange(is_accepting_, true)) return;
  tasks_.spawn(accept_loop());
}

void ControlNode::set_address(int peer, const std::string& address) {
  addresses_[peer] = address;
  changed_.notify_all();
}

const std::string* ControlNode::known_address(int peer) const {
  const auto found = addresses_.find(peer);
  return found == addresses_.end() ? nullptr : &found->second;
}

void ControlNode::set_directory(std::unique_ptr<Directory> directory) {
  directory_ = std::move(directory);
}

void ControlNode::seek(int peer) {
  if (directory_ && !addresses_.contains(peer)) directory_->seek_address(peer);
}

sys::Task<void> ControlNode::accept_loop() {
  for (;;) {
    Result<sys::Admitted> admitted = co_await listener_->admit(*doorkeeper_, sys::no_deadline_ns);
    if (admitted.ok()) {
      starving_since_ns_ = 0;
      starved_.reset();
      tasks_.spawn(serve(std::move(*admitted)));
      continue;
    }
    starve(admitted.error());
    sys::Wait pause(world_.scheduler(), world_.now_ns() + pause_ns);
    co_await pause;
  }
}

// Logged once; calls that wait for a peer here fail with it after a while.
void ControlNode::starve(const Error& why) {
  if (starving_since_ns_ == 0) {
    starving_since_ns_ = world_.now_ns();
    log(LogLevel::warn, why.message);
  }
  if (starved_ || world_.now_ns() - starving_since_ns_ < starved_after_ns) return;
  starved_ = own_limit(rank_, why);
  changed_.notify_all();
}

sys::Task<void> ControlNode::serve(sys::Admitted admitted) {
  const std::string from = admitted.stream->peer_address().text();
  Status served = co_await serve_checked(std::move(admitted));
  if (!served.ok())
    log(LogLevel::warn, "rank ", rank_, " closed a connection from ", from, ": ",
        served.error().message);
}

sys::Task<Status> ControlNode::serve_checked(sys::Admitted admitted) {
  if (const auto visit = Doorkeeper::visit_of(admitted)) {
    Status directed = co_await serve_visit(std::move(admitted), *visit);
    co_return std::move(directed);
  }
  const std::int64_t deadline_ns = world_.now_ns() + first_frame_timeout_ns;
  Result<Doorkeeper::Guest> guest = co_await doorkeeper_->welcome(std::move(admitted), deadline_ns);
  if (!guest.ok()) {
    if (guest.error().kind == ErrorKind::misuse && enrolments_)
      enrolments_->disagree(guest.error());
    co_return guest.take_error();
  }
  Result<Frame> frame = co_await guest->channel->read(0, deadline_ns);
  if (!frame.ok()) co_return frame.take_error();
  const FrameKind kind = frame->header.kind;
  if (guest->purpose == Purpose::enrolment && kind == FrameKind::enrol) {
    Result<Enrolment> enrolment = decode_enrolment(frame->payload);
    if (!enrolment.ok()) co_return enrolment.take_error();
    Status served = co_await serve_enrolment(std::move(guest->channel), std::move(*enrolment));
    co_return std::move(served);
  }
  if (guest->purpose == Purpose::link && kind == FrameKind::survey && serve_survey_) {
    Status served = serve_survey_(guest->channel, frame->payload);
    if (served.ok()) co_return Status();
    served = co_await refuse(std::move(guest->channel), served.error());
    co_return std::move(served);
  }
  if (guest->purpose != Purpose::link || kind != FrameKind::greet)
    co_return environment_error("its first frame has the unexpected kind ", static_cast<int>(kind));
  Result<Greeting> greeting = decode_greeting(frame->payload, world_size_);
  if (!greeting.ok()) co_return greeting.take_error();
  if (greeting->job != job_ || greeting->to.number() != rank_ || greeting->from.number() == rank_)
    co_return environment_error("it was sent by rank ", greeting->from.number(), " of job ",
                                greeting->job, " to rank ", greeting->to.number(),
                                "; this is rank ", rank_, " of job ", job_);
  add_link(greeting->from.number(), std::move(guest->channel));
  co_return Status();
}

// Who comes too late enrols, and is told so.
sys::Task<Status> ControlNode::serve_visit(sys::Admitted admitted, Visitor visitor) {
  Directions directions{.kind = Directions::Kind::enrol};
  if (!is_enrolment_over_) directions = co_await enrolments_->direct(visitor);
  Status directed = co_await doorkeeper_->direct(std::move(admitted), std::move(directions),
                                                 world_.now_ns() + first_frame_timeout_ns);
  co_return std::move(directed);
}

sys::Task<Status> ControlNode::serve_enrolment(std::unique_ptr<Channel> channel,
                                               Enrolment enrolment) {
  if (!is_enrolment_over_) {
    co_await enrolments_->serve(std::move(channel), enrolment);
    co_return Status();
  }
  const Error error =
      misuse("a process at ", channel->peer_address().text(), " tried to join as rank ",
             enrolment.rank, " after the job had started; were too many processes launched?");
  Status refused = co_await refuse(std::move(channel), error);
  co_return std::move(refused);
}

sys::Task<Status> ControlNode::refuse(std::unique_ptr<Channel> channel, Error error) {
  const std::vector<std::byte> payload = encode_failure(error);
  const std::int64_t deadline_ns = world_.now_ns() + first_frame_timeout_ns;
  const MessageKey no_key;
  Status told = co_await channel->write(FrameKind::failure, no_key, payload, deadline_ns);
  if (told.ok()) co_await channel->wait_for_end(deadline_ns);
  co_return error;
}

void ControlNode::add_link(int peer, std::unique_ptr<Channel> channel) {
  links_.push_back(std::make_unique<Link>());
  Link& link = *links_.back();
  link.peer = peer;
  link.channel = std::move(channel);
  link_of_peer_.emplace(peer, &link);
  last_message_ns_[peer] = world_.now_ns();
  tasks_.spawn(read_loop(link));
  changed_.notify_all();
}

void ControlNode::lose(Link& link, const std::string& why, bool is_orderly) {
  if (link.is_lost) return;
  link.is_lost = true;
  link.channel->close();
  link.write_waiters.notify_all();
  const auto other = std::find_if(links_.begin(), links_.end(), [&](const auto& one) {
    return one->peer == link.peer && !one->is_lost;
  });
  if (is_orderly && other != links_.end())
    link_of_peer_[link.peer] = other->get();
  else
    lost_.emplace(link.peer, why);
  changed_.notify_all();
}

sys::Task<void> ControlNode::read_loop(Link& link) {
  while (!link.is_lost) {
    Result<Frame> frame = co_await link.channel->read(max_message_bytes_, sys::no_deadline_ns);
    if (!frame.ok()) {
      lose(link, frame.error().message, false);
      co_return;
    }
    last_message_ns_[link.peer] = world_.now_ns();
    if (frame->header.kind == FrameKind::bye)
      lose(link, std::string(has_left), true);
    else if (!take(link, *frame))
      lose(link,
           str("it sent a frame of kind ", static_cast<int>(frame->header.kind),
               " that is malformed, unexpected, or too large for this rank"),
           false);
  }
}

bool ControlNode::take(Link& link, Frame& frame) {
  const FrameHeader& header = frame.header;
  const GroupId group{header.key.communicator, header.key.epoch};
  switch (header.kind) {
    case FrameKind::message:
      return deposit(link.peer, header.key, std::move(frame.payload));
    case FrameKind::failure: {
      const Result<ToldFailure> told = decode_failure(frame.payload, world_size_);
      if (!told.ok()) return false;
      if (is_retired(header.key) ||
          !fail(group, told->error, {header.key.sequence, header.key.round}))
        return true;
      break;
    }
    case FrameKind::look_up:
    case FrameKind::found:
      return directory_ && directory_->on_frame(link.peer, header.kind, frame.payload);
    case FrameKind::progress:
    case FrameKind::suspicion:
    case FrameKind::ask:
    case FrameKind::answer:
    case FrameKind::dump:
      break;
    default:
      return false;
  }
  const auto listener = listeners_.find(group);
  return listener == listeners_.end() ||
         listener->second->on_frame(link.peer, header.kind, frame.payload);
}

Status ControlNode::check(int peer, GroupId group) const {
  if (const Error* error = failure(group)) return *error;
  if (starved_) return *starved_;
  if (const auto lost = lost_.find(peer); lost != lost_.end())
    return peer_error(peer, "the connection to rank ", peer, " was lost (", lost->second,
                      "); its process has probably ended");
  return {};
}

bool ControlNode::has_broken_off(int peer) const {
  const auto lost = lost_.find(peer);
  return lost != lost_.end() && lost->second != has_left;
}

sys::Task<Result<std::unique_ptr<Channel>>> ControlNode::connect_authenticated(
    int peer, std::int64_t deadline_ns) {
  Result<sys::Address> address = sys::Address::parse(addresses_[peer]);
  if (!address.ok()) co_return address.take_error();
  // Both are ranks: one is this node's, the other the caller's.
  const Greeting greeting{job_, *Rank::among(rank_, world_size_), *Rank::among(peer, world_size_)};
  const std::vector<std::byte> payload = encode(greeting);
  const Key key = link_key(job_key_);
  const MessageKey no_key;
  std::string why;
  std::int64_t wait_ns = 0;
  for (int failed = 0; failed < connect_attempts && world_.now_ns() < deadline_ns;) {
    if (wait_ns > 0) {
      sys::Wait pause(world_.scheduler(), std::min(deadline_ns, world_.now_ns() + wait_ns));
      co_await pause;
    }
    wait_ns = first_pause_ns << failed;
    ++failed;
    const std::int64_t attempt_ns = std::min(deadline_ns, world_.now_ns() + connect_timeout_ns);
    Result<std::unique_ptr<sys::Stream>> stream = co_await world_.connect(*address, attempt_ns);
    if (!stream.ok() && sys::out_of_descriptors()) co_return own_limit(rank_, stream.error());
    if (!stream.ok()) {
      why = stream.error().message;
      continue;
    }
    // The peer answers when it is next inside a call, which may take as long as we may wait.
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
        world_, std::move(*stream), Purpose::link, key, wire_, deadline_ns, refusal);
    if (channel.ok()) {
      Status sent = co_await (*channel)->write(FrameKind::greet, no_key, payload, deadline_ns);
      if (sent.ok()) co_return std::move(*channel);
      why = sent.error().message;
      continue;
    }
    if (refusal == Refusal::disagree) co_return channel.take_error();
    why = channel.error().message;
    // Strangers may have taken the place, or this rank has not looked for a while: the peer is
    // there, or else the next connection is refused.
    if (refusal == Refusal::dropped) --failed;
  }
  if (world_.now_ns() >= deadline_ns)
    co_return timeout_error(peer, "rank ", peer, " at ", address->text(),
                            " did not accept a connection in time: ", why);
  co_return peer_error(peer, "cannot connect to rank ", peer, " at ", address->text(), ": ", why);
}

// Connecting is a task of its own: a group's failure ends the wait for a peer that does not answer.
sys::Task<Result<ControlNode::Link*>> ControlNode::usable_link(int peer, GroupId group,
                                                               std::int64_t deadline_ns) {
  unreachable_.erase(peer);
  for (;;) {
    if (const auto why = unreachable_.extract(peer); why && !why.mapped().timed_out)
      co_return why.mapped();
    Status usable = check(peer, group);
    if (!usable.ok()) co_return usable.take_error();
    const auto found = link_of_peer_.find(peer);
    if (found != link_of_peer_.end()) co_return found->second;
    watch_peer(peer, deadline_ns);
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " did not connect in time");
  }
}

void ControlNode::watch_peer(int peer, std::int64_t deadline_ns) {
  if (link_of_peer_.contains(peer) || connecting_.contains(peer)) return;
  seek(peer);
  if (!addresses_.contains(peer)) return;
  connecting_.insert(peer);
  tasks_.spawn(link_to_watch(peer, deadline_ns));
}

sys::Task<void> ControlNode::link_to_watch(int peer, std::int64_t deadline_ns) {
  Result<std::unique_ptr<Channel>> channel = co_await connect_authenticated(peer, deadline_ns);
  connecting_.erase(peer);
  if (!channel.ok()) unreachable_.insert_or_assign(peer, channel.error());
  if (channel.ok())
    add_link(peer, std::move(*channel));
  else if (channel.error().kind == ErrorKind::peer && !channel.error().timed_out &&
           !link_of_peer_.contains(peer))
    lost_.emplace(peer, channel.error().message);
  changed_.notify_all();
}

sys::Task<Status> ControlNode::link(int peer, GroupId group, std::int64_t deadline_ns) {
  Result<Link*> made = co_await usable_link(peer, group, deadline_ns);
  if (!made.ok()) co_return made.take_error();
  co_return Status();
}

}  // namespace unisono::comm
