#include "comm/bootstrap/join.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "base/wire.h"
#include "comm/bootstrap/group.h"
#include "comm/bootstrap/handshake.h"
#include "comm/bootstrap/rendezvous.h"
#include "sys/tcp_socket.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t millisecond_ns = 1'000'000;
constexpr std::int64_t attempt_timeout_ns = 10'000 * millisecond_ns;
// How long a rank with a failure waits for the rendezvous to say what the job's failure is.
constexpr std::int64_t verdict_timeout_ns = 2'000 * millisecond_ns;
// The bootstrap's own exchange in the group of all ranks; calls count from 0 upwards.
constexpr std::uint64_t bootstrap_sequence = ~std::uint64_t{0};
constexpr std::size_t max_secret_bytes = 256;
constexpr std::int64_t first_pause_ns = 10 * millisecond_ns;

Result<std::uint64_t> random_number(sys::World& world) {
  std::array<std::byte, 8> bytes;
  UNISONO_TRY(world.fill_random(bytes));
  return WireReader(bytes).number<std::uint64_t>();
}

Result<Key> random_key(sys::World& world) {
  Key key;
  UNISONO_TRY(world.fill_random(key));
  return key;
}

// One rank's way through the bootstrap.
class Joining {
 public:
  Joining(sys::World& world, BootstrapOptions options, std::vector<std::byte> mine,
          std::unique_ptr<sys::Listener> listener)
      : world_(world),
        options_(std::move(options)),
        mine_(std::move(mine)),
        listener_(std::move(listener)),
        deadline_ns_(world.now_ns() + options_.timeout_ns) {}

  sys::Task<Result<Joined>> run();

 private:
  sys::Task<Status> run_alone();
  sys::Task<Status> run_as_rendezvous();
  sys::Task<Status> run_as_guest();
  Status open_rendezvous();
  Status start_rendezvous();
  sys::Task<Status> enrol();
  sys::Task<Result<std::unique_ptr<Channel>>> reach_rendezvous();
  sys::Task<Result<std::unique_ptr<Channel>>> try_rendezvous(std::int64_t deadline_ns,
                                                             Refusal& refusal);
  Result<sys::Address> find_rendezvous();
  sys::Task<void> watch();
  sys::Task<Status> wait_for(const bool& condition, const char* what);
  sys::Task<Status> gather(std::string next_address);
  sys::Task<Error> conclude(Error error);
  void fail(const Error& error);
  WireProtection wire() const { return {options_.protection, options_.protects_loopback}; }
  GroupId group() const { return {node_->job(), 0}; }

  sys::World& world_;
  BootstrapOptions options_;
  const std::vector<std::byte> mine_;
  std::unique_ptr<sys::Listener> listener_;
  const std::int64_t deadline_ns_;
  RendezvousPlace place_;
  std::shared_ptr<ControlNode> node_;
  Gathered contributions_;

  std::shared_ptr<Rendezvous> rendezvous_;  // rank 0

  Key enrolment_key_{};
  std::unique_ptr<Channel> channel_;  // to the rendezvous; the other ranks
  std::string next_address_;
  bool is_introduced_ = false;
  bool is_released_ = false;
  std::optional<Error> verdict_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

sys::Task<Result<Joined>> Joining::run() {
  Status valid = check_options(options_, mine_.size());
  if (!valid.ok()) co_return valid.take_error();
  Status joined;
  if (options_.world_size == 1) {
    joined = co_await run_alone();
  } else {
    place_ = *parse_rendezvous(options_.rendezvous);
    if (options_.rank == 0)
      joined = co_await run_as_rendezvous();
    else
      joined = co_await run_as_guest();
  }
  if (!joined.ok()) co_return joined.take_error();
  Joined out;
  out.node = std::move(node_);
  out.contributions = std::move(contributions_);
  co_return std::move(out);
}

sys::Task<Status> Joining::run_alone() {
  node_ = std::make_shared<ControlNode>(world_, 0, 1, wire());
  Result<std::uint64_t> job = random_number(world_);
  if (!job.ok()) co_return job.take_error();
  Result<Key> key = random_key(world_);
  if (!key.ok()) co_return key.take_error();
  node_->set_job(*job, *key);
  contributions_ = Gathered(mine_, {mine_.size()});
  co_return Status();
}

sys::Task<Status> Joining::run_as_rendezvous() {
  Status opened = open_rendezvous();
  if (!opened.ok()) co_return std::move(opened);
  Status done = start_rendezvous();
  if (done.ok()) {
    Result<std::string> next = co_await rendezvous_->next_address();
    if (next.ok())
      done = co_await gather(*next);
    else
      done = next.take_error();
    if (done.ok()) {
      rendezvous_->own_done();
      done = co_await rendezvous_->released();
    }
    if (!done.ok()) {
      rendezvous_->report(node_->starved() ? *node_->starved() : done.error());
      if (rendezvous_->verdict()) done = *rendezvous_->verdict();
    }
    co_await rendezvous_->drain(world_.now_ns() + verdict_timeout_ns);
    node_->end_enrolment();
  }
  if (place_.is_file) {
    world_.remove_file(place_.path);
    if (options_.secret.empty()) world_.remove_file(place_.path + ".secret");
  }
  co_return std::move(done);
}

Status Joining::open_rendezvous() {
  if (listener_) return {};
  sys::Address where = place_.address;
  if (place_.is_file) where = {world_.own_host(), 0};
  if (!options_.interface.empty()) where.host = options_.interface;
  UNISONO_ASSIGN(listener_, world_.listen(where));
  return {};
}

Status Joining::start_rendezvous() {
  UNISONO_ASSIGN(const std::uint64_t job, random_number(world_));
  UNISONO_ASSIGN(const Key job_key, random_key(world_));
  const std::string own_address = listener_->address().text();
  std::string secret = options_.secret;
  if (place_.is_file) {
    if (secret.empty()) {
      UNISONO_ASSIGN(const Key random, random_key(world_));
      secret = hex(random);
      UNISONO_TRY(world_.publish_file(place_.path + ".secret", secret));
    }
    UNISONO_TRY(world_.publish_file(place_.path, encode_rendezvous_file(own_address, secret)));
  }
  node_ = std::make_shared<ControlNode>(world_, 0, options_.world_size, wire());
  node_->set_job(job, job_key);
  Rendezvous::Setup setup;
  setup.world_size = options_.world_size;
  setup.job = job;
  setup.job_key = job_key;
  setup.own_address = own_address;
  setup.deadline_ns = deadline_ns_;
  setup.on_verdict = [this](const Error& error) { fail(error); };
  rendezvous_ = std::make_shared<Rendezvous>(world_, std::move(setup));
  ControlNode::Enrolments enrolments;
  enrolments.key = enrolment_key(secret, options_.shared_key);
  enrolments.serve = [rendezvous = rendezvous_](std::unique_ptr<Channel> channel,
                                                const Enrolment& enrolment) {
    return Rendezvous::serve(rendezvous, std::move(channel), enrolment);
  };
  enrolments.disagree = [rendezvous = rendezvous_](const Error& error) {
    rendezvous->report(error);
  };
  return node_->start(std::move(listener_), std::move(enrolments));
}

sys::Task<Status> Joining::run_as_guest() {
  Status done = co_await enrol();
  if (!done.ok()) co_return std::move(done);
  tasks_.spawn(watch());
  done = co_await wait_for(is_introduced_, "the next rank did not reach the rendezvous");
  if (done.ok()) done = co_await gather(next_address_);
  if (done.ok()) {
    const MessageKey no_key;
    done = co_await channel_->write(FrameKind::done, no_key, {}, deadline_ns_);
    if (done.ok())
      done = co_await wait_for(is_released_, "some ranks did not finish the bootstrap");
  }
  if (done.ok()) co_return Status();
  Error error = co_await conclude(done.error());
  co_return std::move(error);
}

Result<sys::Address> Joining::find_rendezvous() {
  if (!place_.is_file) {
    enrolment_key_ = enrolment_key(options_.secret, options_.shared_key);
    return place_.address;
  }
  std::string secret = options_.secret;
  if (secret.empty()) {
    UNISONO_ASSIGN(secret, world_.read_file(place_.path + ".secret", max_secret_bytes, true));
  }
  UNISONO_ASSIGN(const std::string content,
                 world_.read_file(place_.path, max_rendezvous_file_bytes, false));
  auto text = decode_rendezvous_file(content, secret);
  if (!text.ok()) return environment_error(place_.path, ": ", text.error().message);
  enrolment_key_ = enrolment_key(secret, options_.shared_key);
  return sys::Address::parse(*text);
}

sys::Task<Result<std::unique_ptr<Channel>>> Joining::try_rendezvous(std::int64_t deadline_ns,
                                                                    Refusal& refusal) {
  refusal = Refusal::none;
  Result<sys::Address> address = find_rendezvous();
  if (!address.ok()) co_return address.take_error();
  Result<std::unique_ptr<sys::Stream>> stream = co_await world_.connect(*address, deadline_ns);
  if (!stream.ok()) co_return stream.take_error();
  Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
      world_, std::move(*stream), Purpose::enrolment, enrolment_key_, wire(), deadline_ns, refusal);
  co_return std::move(channel);
}

// Tries until the deadline: rank 0 may start later, and an old job's file may lie in the way.
sys::Task<Result<std::unique_ptr<Channel>>> Joining::reach_rendezvous() {
  std::string why;
  std::int64_t pause_ns = first_pause_ns;
  while (world_.now_ns() < deadline_ns_) {
    const std::int64_t attempt_ns = std::min(deadline_ns_, world_.now_ns() + attempt_timeout_ns);
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel = co_await try_rendezvous(attempt_ns, refusal);
    if (channel.ok() || refusal == Refusal::disagree) co_return std::move(channel);
    why = channel.error().message;
    if (sys::out_of_descriptors()) co_return own_limit(options_.rank, channel.error());
    if (refusal == Refusal::secret && !place_.is_file) co_return environment_error(why);
    // Strangers may have taken this rank's place; the next attempt may have more luck.
    if (refusal == Refusal::dropped) pause_ns = first_pause_ns;
    // Between half and all of the pause, so that many ranks do not come all at once.
    Result<std::uint64_t> random = random_number(world_);
    if (!random.ok()) co_return random.take_error();
    const std::int64_t jitter_ns =
        static_cast<std::int64_t>(*random % static_cast<std::uint64_t>(pause_ns / 2));
    sys::Wait pause(world_.scheduler(),
                    std::min(deadline_ns_, world_.now_ns() + pause_ns / 2 + jitter_ns));
    co_await pause;
    pause_ns = std::min(2 * pause_ns, 500 * millisecond_ns);
  }
  co_return timeout_error(0, "rank ", options_.rank, " did not reach the rendezvous (rank 0) at ",
                          options_.rendezvous, " within ", format_duration_ns(options_.timeout_ns),
                          "; the last attempt: ", why);
}

sys::Task<Status> Joining::enrol() {
  node_ = std::make_shared<ControlNode>(world_, options_.rank, options_.world_size, wire());
  Result<std::unique_ptr<Channel>> reached = co_await reach_rendezvous();
  if (!reached.ok()) co_return reached.take_error();
  channel_ = std::move(*reached);
  sys::Address where{channel_->local_address().host, 0};
  if (!options_.interface.empty()) where.host = options_.interface;
  Result<std::unique_ptr<sys::Listener>> listener = world_.listen(where);
  if (!listener.ok()) co_return listener.take_error();
  Status started = node_->start(std::move(*listener), std::nullopt);
  if (!started.ok()) co_return std::move(started);
  Enrolment enrolment;
  enrolment.rank = static_cast<std::uint32_t>(options_.rank);
  enrolment.world_size = static_cast<std::uint32_t>(options_.world_size);
  enrolment.address = node_->address().text();
  const std::vector<std::byte> payload = encode(enrolment);
  const MessageKey no_key;
  Status sent = co_await channel_->write(FrameKind::enrol, no_key, payload, deadline_ns_);
  co_return std::move(sent);
}

sys::Task<void> Joining::watch() {
  while (!is_released_ && !verdict_) {
    Result<Frame> frame = co_await channel_->read(0, sys::no_deadline_ns);
    if (!frame.ok()) {
      verdict_ = peer_error(0, "rank 0 (the rendezvous) left before all ranks had connected (",
                            frame.error().message, ")");
    } else if (frame->header.kind == FrameKind::failure) {
      const Result<ToldFailure> told = decode_failure(frame->payload, options_.world_size);
      verdict_ = told.ok() ? told.value().error : told.error();
    } else if (frame->header.kind == FrameKind::release) {
      is_released_ = true;
    } else if (frame->header.kind == FrameKind::introduce && !is_introduced_) {
      Result<Introduction> introduction = decode_introduction(frame->payload);
      if (introduction.ok()) {
        next_address_ = introduction->next_address;
        is_introduced_ = true;
        node_->set_job(introduction->job, channel_->wrap(introduction->wrapped_key));
      } else {
        verdict_ = introduction.error();
      }
    } else {
      verdict_ = peer_error(0, "rank 0 sent frame kind ", static_cast<int>(frame->header.kind),
                            ", which was not expected here; is it another version of unisono?");
    }
    if (verdict_) fail(*verdict_);
    node_->changed().notify_all();
  }
}

void Joining::fail(const Error& error) { node_->fail(group(), error); }

sys::Task<Status> Joining::wait_for(const bool& condition, const char* what) {
  while (!condition) {
    if (verdict_) co_return *verdict_;
    sys::Wait wait(world_.scheduler(), node_->changed(), deadline_ns_);
    const bool notified = co_await wait;
    if (!notified)
      co_return timeout_error(-1, "the bootstrap of rank ", options_.rank, " ended after ",
                              format_duration_ns(options_.timeout_ns), ": ", what);
  }
  co_return Status();
}

sys::Task<Status> Joining::gather(std::string next_address) {
  Entry own;
  own.address = node_->address().text();
  own.contribution = mine_;
  const std::vector<std::byte> entry = encode(own);
  std::vector<int> members(static_cast<std::size_t>(options_.world_size));
  std::iota(members.begin(), members.end(), 0);
  const MessageKey key{node_->job(), 0, bootstrap_sequence, 0};
  GatherProgress progress;
  constexpr std::size_t max_entry_bytes = 8 + max_address_bytes + max_bootstrap_bytes;
  Result<std::vector<std::vector<std::byte>>> table =
      co_await gather_tables(*node_, key, members, options_.rank, entry, max_entry_bytes,
                             &next_address, deadline_ns_, progress);
  if (!table.ok()) co_return table.take_error();

  const std::size_t p = members.size();
  std::vector<std::byte> bytes;
  std::vector<std::size_t> ends;
  for (std::size_t rank = 0; rank < p; ++rank) {
    const auto& encoded = (*table)[(rank + p - static_cast<std::size_t>(options_.rank)) % p];
    Result<Entry> decoded = decode_entry(encoded);
    if (!decoded.ok())
      co_return peer_error(static_cast<int>(rank), "rank ", rank, ": ", decoded.error().message);
    node_->set_address(static_cast<int>(rank), decoded->address);
    bytes.insert(bytes.end(), decoded->contribution.begin(), decoded->contribution.end());
    ends.push_back(bytes.size());
  }
  contributions_ = Gathered(std::move(bytes), std::move(ends));
  co_return Status();
}

// What one rank sees of a failure is often its consequence; the rendezvous knows the first one.
sys::Task<Error> Joining::conclude(Error error) {
  if (verdict_) co_return *verdict_;
  const std::int64_t deadline_ns = world_.now_ns() + verdict_timeout_ns;
  const std::vector<std::byte> payload = encode_failure(error);
  const MessageKey no_key;
  Status told = co_await channel_->write(FrameKind::failure, no_key, payload, deadline_ns);
  while (told.ok() && !verdict_) {
    sys::Wait wait(world_.scheduler(), node_->changed(), deadline_ns);
    const bool notified = co_await wait;
    if (!notified) break;
  }
  if (verdict_) co_return *verdict_;
  co_return std::move(error);
}

}  // namespace

sys::Task<Result<Joined>> join_job(sys::World& world, BootstrapOptions options,
                                   std::vector<std::byte> mine,
                                   std::unique_ptr<sys::Listener> listener) {
  Joining joining(world, std::move(options), std::move(mine), std::move(listener));
  Result<Joined> joined = co_await joining.run();
  co_return std::move(joined);
}

}  // namespace unisono::comm
