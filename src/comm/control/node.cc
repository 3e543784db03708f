#include "comm/control/node.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/control/control_group.h"
#include "comm/control/dial.h"
#include "comm/control/directory.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
// For what follows the proof, from who has the secret.
constexpr std::int64_t first_frame_timeout_ns = 10 * second_ns;
// Connections that have proved nothing; the oldest makes room for one more. Ranks that join spread
// their coming (Joining::reach), and those that are dropped come again.
constexpr std::size_t most_waiting = 256;

}  // namespace

ControlNode::ControlNode(sys::World& world, int rank, int world_size, const WireProtection& wire)
    : world_(world),
      rank_(rank),
      world_size_(world_size),
      wire_(wire),
      max_message_bytes_(
          max_table_bytes(static_cast<std::size_t>(world_size), max_exchange_bytes)) {}

ControlNode::~ControlNode() {
  say_bye();
  tasks_.cancel_all();
  erase(job_key_);
}

void ControlNode::say_bye() {
  if (std::exchange(has_said_bye_, true)) return;
  for (const auto& link : links_)
    if (!link->is_lost && !link->is_being_written) link->channel->say_bye();
  // The rank at the other end may have made a link of it already.
  for (const auto& [number, channel] : ungreeted_) channel->say_bye();
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
  tasks_.spawn(sys::admit_all(world_, *listener_, *doorkeeper_, *this));
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

void ControlNode::on_admitted(sys::Admitted admitted) { tasks_.spawn(serve(std::move(admitted))); }

// Calls that wait for a peer here fail with it.
void ControlNode::on_starved(const Error* why) {
  if (why == nullptr) {
    starved_.reset();
  } else if (!starved_) {
    starved_ = own_limit(rank_, *why);
    changed_.notify_all();
  }
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
  Result<Frame> frame = co_await read_first(*guest, deadline_ns);
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

sys::Task<Result<Frame>> ControlNode::read_first(const Doorkeeper::Guest& guest,
                                                 std::int64_t deadline_ns) {
  const std::uint64_t number = ++last_ungreeted_;
  if (guest.purpose == Purpose::link) ungreeted_.emplace(number, guest.channel.get());
  Result<Frame> frame = co_await guest.channel->read(0, deadline_ns);
  ungreeted_.erase(number);
  changed_.notify_all();
  co_return std::move(frame);
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

}  // namespace unisono::comm
