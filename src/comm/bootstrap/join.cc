#include "comm/bootstrap/join.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "base/wire.h"
#include "comm/bootstrap/assembly.h"
#include "comm/bootstrap/directory.h"
#include "comm/bootstrap/handshake.h"
#include "comm/bootstrap/reception.h"
#include "sys/tcp_socket.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t millisecond_ns = 1'000'000;
constexpr std::int64_t attempt_timeout_ns = 10'000 * millisecond_ns;
// How long a rank of a job that has failed tells those who come late.
constexpr std::int64_t tell_late_ns = 2'000 * millisecond_ns;
constexpr std::size_t max_secret_bytes = 256;
constexpr std::int64_t first_pause_ns = 10 * millisecond_ns;
constexpr std::int64_t max_pause_ns = 500 * millisecond_ns;
// Ranks with a common first address come one after another, but for the first ones. A visit takes
// less than half of this time of the visited rank's processor (bench/results/init_scale.txt).
constexpr int most_at_once = 4;
constexpr std::int64_t turn_ns = millisecond_ns / 10;
// With a file for a rendezvous, ranks with so many below them write files of their own, so that no
// rank serves many. A rank finds its parent in two steps then.
constexpr int least_below_gate = 32;
// So often a rank looks for its gate before it asks rank 0, too: for half a second.
constexpr int most_for_gate = 6;

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

// One rank's way into the job.
class Joining {
 public:
  Joining(sys::World& world, BootstrapOptions options, SelfDescription self,
          std::unique_ptr<sys::Listener> listener)
      : world_(world),
        options_(std::move(options)),
        self_(std::move(self)),
        listener_(std::move(listener)),
        deadline_ns_(world.now_ns() + options_.timeout_ns) {}

  sys::Task<Result<Joined>> run();

 private:
  // Whom this rank asks for its parent.
  struct Step {
    int rank = 0;
    std::optional<sys::Address> address;  // as it was told; else where the rendezvous says
  };

  sys::Task<Status> assemble();
  Status begin_job();
  Status publish(const std::string& path, const std::string& secret);
  Status open_gate();
  Status find_secret();
  Status start_node(std::unique_ptr<sys::Listener> listener);
  sys::Task<Status> reach_parent();
  sys::Task<Status> wait_for_turn();
  sys::Task<Status> pause(std::int64_t& pause_ns);
  sys::Task<Result<std::unique_ptr<Channel>>> connect(const Step& step, std::int64_t deadline_ns,
                                                      Refusal& refusal);
  Result<sys::Address> address_of(const Step& step);
  sys::Task<Result<bool>> ask(std::unique_ptr<Channel> channel, Step& step);
  Result<bool> take(const Frame& frame, std::unique_ptr<Channel> channel, Step& step);
  void report(const Error& error);
  void set_job(std::uint64_t job, const Key& key);
  std::string file_of(int rank) const {
    return rank == 0 ? place_.path : str(place_.path, ".", rank);
  }
  int gate_of_this_rank() const;
  bool is_gate() const { return place_.is_file && tree_->subtree().size() > least_below_gate; }
  WireProtection wire() const { return {options_.protection, options_.protects_loopback}; }

  sys::World& world_;
  BootstrapOptions options_;
  const SelfDescription self_;
  std::unique_ptr<sys::Listener> listener_;
  const std::int64_t deadline_ns_;
  RendezvousPlace place_;
  std::optional<TreePlace> tree_;
  std::string secret_;
  std::shared_ptr<ControlNode> node_;
  std::shared_ptr<Reception> reception_;
  std::vector<std::string> published_;
  std::optional<Error> early_;  // before this rank could tell it
  std::optional<Assembly> assembly_;
  Roster roster_;
};

sys::Task<Result<Joined>> Joining::run() {
  Status valid = check_options(options_, self_.common.size());
  if (!valid.ok()) co_return valid.take_error();
  tree_.emplace(options_.rank, options_.world_size, options_.fan_out);
  node_ = std::make_shared<ControlNode>(world_, options_.rank, options_.world_size, wire());
  if (options_.world_size > 1) place_ = *parse_rendezvous(options_.rendezvous);
  Status joined;
  if (options_.rank == 0)
    joined = begin_job();
  else
    joined = co_await reach_parent();
  if (joined.ok()) joined = co_await assemble();
  if (!joined.ok() && reception_) {
    reception_->fail(joined.error());
    co_await reception_->drain(world_.now_ns() + tell_late_ns);
  }
  for (const std::string& path : published_) world_.remove_file(path);
  if (reception_) reception_->close();
  if (!joined.ok()) co_return joined.take_error();
  node_->end_enrolment();
  Joined out;
  out.node = std::move(node_);
  out.roster = std::move(roster_);
  co_return std::move(out);
}

sys::Task<Status> Joining::assemble() {
  Assembly::Setup setup;
  setup.self = self_;
  setup.most_addresses = options_.most_addresses;
  setup.timeout_ns = options_.timeout_ns;
  setup.deadline_ns = deadline_ns_;
  assembly_.emplace(*node_, *tree_, reception_, std::move(setup));
  if (early_) assembly_->fail(*early_);
  Result<Roster> roster = co_await assembly_->run();
  assembly_.reset();
  if (!roster.ok()) co_return roster.take_error();
  roster_ = std::move(*roster);
  co_return Status();
}

void Joining::report(const Error& error) {
  if (assembly_)
    assembly_->fail(error);
  else if (!early_)
    early_ = error;
}

void Joining::set_job(std::uint64_t job, const Key& key) {
  node_->set_directory(std::make_unique<Directory>(*node_, *tree_));
  node_->set_job(job, key);
}

// Rank 0's.
Status Joining::begin_job() {
  UNISONO_ASSIGN(const std::uint64_t job, random_number(world_));
  UNISONO_ASSIGN(const Key job_key, random_key(world_));
  set_job(job, job_key);
  if (options_.world_size == 1) return {};
  if (!listener_) {
    sys::Address where = place_.address;
    if (place_.is_file) where = {world_.own_host(), 0};
    if (!options_.interface.empty()) where.host = options_.interface;
    UNISONO_ASSIGN(listener_, world_.listen(where));
  }
  secret_ = options_.secret;
  if (place_.is_file && secret_.empty()) {
    UNISONO_ASSIGN(const Key random, random_key(world_));
    secret_ = hex(random);
    UNISONO_TRY(world_.publish_file(place_.path + ".secret", secret_));
    published_.push_back(place_.path + ".secret");
  }
  const std::string address = listener_->address().text();
  UNISONO_TRY(start_node(std::move(listener_)));
  if (!place_.is_file) return {};
  return publish(address, secret_);
}

Status Joining::publish(const std::string& address, const std::string& secret) {
  const std::string path = file_of(options_.rank);
  UNISONO_TRY(world_.publish_file(path, encode_rendezvous_file(address, secret)));
  published_.push_back(path);
  return {};
}

Status Joining::start_node(std::unique_ptr<sys::Listener> listener) {
  if (tree_->children().empty()) return node_->start(std::move(listener), std::nullopt);
  reception_ =
      std::make_shared<Reception>(*node_, *tree_, [this](const Error& error) { report(error); });
  ControlNode::Enrolments enrolments;
  enrolments.key = enrolment_key(secret_, options_.shared_key);
  enrolments.serve = [reception = reception_](std::unique_ptr<Channel> channel,
                                              const Enrolment& enrolment) {
    return Reception::serve(reception, std::move(channel), enrolment);
  };
  enrolments.disagree = [reception = reception_](const Error& error) { reception->report(error); };
  return node_->start(std::move(listener), std::move(enrolments));
}

int Joining::gate_of_this_rank() const {
  if (!place_.is_file) return 0;
  int gate = 0;
  RankRange range{0, options_.world_size};
  while (range.size() > least_below_gate && range.first != options_.rank) {
    gate = range.first;
    for (const RankRange& child : divide(range, options_.fan_out))
      if (child.contains(options_.rank)) range = child;
  }
  return gate;
}

Status Joining::find_secret() {
  if (!secret_.empty()) return {};
  secret_ = options_.secret;
  if (!secret_.empty() || !place_.is_file) return {};
  UNISONO_ASSIGN(secret_, world_.read_file(place_.path + ".secret", max_secret_bytes, true));
  return {};
}

// A gate listens before it has reached anybody.
Status Joining::open_gate() {
  if (!is_gate() || node_->is_started()) return {};
  sys::Address where{options_.interface.empty() ? world_.own_host() : options_.interface, 0};
  UNISONO_ASSIGN(auto listener, world_.listen(where));
  const std::string address = listener->address().text();
  UNISONO_TRY(start_node(std::move(listener)));
  return publish(address, secret_);
}

Result<sys::Address> Joining::address_of(const Step& step) {
  UNISONO_TRY(find_secret());
  UNISONO_TRY(open_gate());
  if (step.address) return *step.address;
  if (!place_.is_file) return place_.address;
  const std::string path = file_of(step.rank);
  UNISONO_ASSIGN(const std::string content,
                 world_.read_file(path, max_rendezvous_file_bytes, false));
  auto text = decode_rendezvous_file(content, secret_);
  if (!text.ok()) {
    // An old job's, whose secret may have been read, too.
    secret_ = node_->is_started() ? secret_ : std::string();
    return environment_error(path, ": ", text.error().message);
  }
  return sys::Address::parse(*text);
}

sys::Task<Result<std::unique_ptr<Channel>>> Joining::connect(const Step& step,
                                                             std::int64_t deadline_ns,
                                                             Refusal& refusal) {
  refusal = Refusal::none;
  Result<sys::Address> address = address_of(step);
  if (!address.ok()) co_return address.take_error();
  Result<std::unique_ptr<sys::Stream>> stream = co_await world_.connect(*address, deadline_ns);
  if (!stream.ok()) co_return stream.take_error();
  const Key key = enrolment_key(secret_, options_.shared_key);
  Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
      world_, std::move(*stream), Purpose::enrolment, key, wire(), deadline_ns, refusal);
  co_return std::move(channel);
}

sys::Task<Status> Joining::wait_for_turn() {
  const int before = options_.rank - gate_of_this_rank() - 1;
  if (is_gate() || before < most_at_once) co_return Status();
  sys::Wait turn(world_.scheduler(),
                 std::min(deadline_ns_, world_.now_ns() + (before - most_at_once) * turn_ns));
  co_await turn;
  co_return Status();
}

// Takes between half and all of the pause, so that many ranks do not come all at once; the next one
// is longer.
sys::Task<Status> Joining::pause(std::int64_t& pause_ns) {
  Result<std::uint64_t> random = random_number(world_);
  if (!random.ok()) co_return random.take_error();
  const auto jitter_ns =
      static_cast<std::int64_t>(*random % static_cast<std::uint64_t>(pause_ns / 2));
  sys::Wait pause(world_.scheduler(),
                  std::min(deadline_ns_, world_.now_ns() + pause_ns / 2 + jitter_ns));
  co_await pause;
  pause_ns = std::min(2 * pause_ns, max_pause_ns);
  co_return Status();
}

// Tries until the deadline: ranks above may start later, and an old job's file may lie in the way.
sys::Task<Status> Joining::reach_parent() {
  const int gate = gate_of_this_rank();
  Status waited = co_await wait_for_turn();
  std::string why;
  std::int64_t pause_ns = first_pause_ns;
  Step step{gate, std::nullopt};
  for (int attempt = 1; waited.ok() && world_.now_ns() < deadline_ns_; ++attempt) {
    const std::int64_t attempt_ns = std::min(deadline_ns_, world_.now_ns() + attempt_timeout_ns);
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel = co_await connect(step, attempt_ns, refusal);
    if (channel.ok()) {
      const std::optional<sys::Address> before = step.address;
      Result<bool> asked = co_await ask(std::move(*channel), step);
      if (!asked.ok()) co_return asked.take_error();
      if (*asked) co_return Status();
      if (step.address && step.address != before) {
        pause_ns = first_pause_ns;
        continue;
      }
      why = str("rank ", step.rank, " waits for a rank above this one");
      waited = co_await pause(pause_ns);
      continue;
    }
    if (refusal == Refusal::disagree) co_return channel.take_error();
    why = channel.error().message;
    if (sys::out_of_descriptors()) co_return own_limit(options_.rank, channel.error());
    if (refusal == Refusal::secret && !place_.is_file) co_return environment_error(why);
    // Strangers may have taken this rank's place; the next attempt may have more luck.
    if (refusal == Refusal::dropped) pause_ns = first_pause_ns;
    waited = co_await pause(pause_ns);
    // Rank 0 tells it when a gate has not come for long, or has gone.
    step = {attempt < most_for_gate || attempt % 2 == 0 ? gate : 0, std::nullopt};
  }
  if (!waited.ok()) co_return std::move(waited);
  co_return timeout_error(0, "rank ", options_.rank, " did not reach the rendezvous (rank 0) at ",
                          options_.rendezvous, " within ", format_duration_ns(options_.timeout_ns),
                          "; the last attempt: ", why);
}

// Whether the parent has been found; else `step` says where to ask next.
sys::Task<Result<bool>> Joining::ask(std::unique_ptr<Channel> channel, Step& step) {
  if (!node_->is_started()) {
    sys::Address where{channel->local_address().host, 0};
    if (!options_.interface.empty()) where.host = options_.interface;
    Result<std::unique_ptr<sys::Listener>> listener = world_.listen(where);
    if (!listener.ok()) co_return listener.take_error();
    Status started = start_node(std::move(*listener));
    if (!started.ok()) co_return started.take_error();
  }
  Enrolment enrolment;
  enrolment.rank = static_cast<std::uint32_t>(options_.rank);
  enrolment.world_size = static_cast<std::uint32_t>(options_.world_size);
  enrolment.address = node_->address().text();
  const std::vector<std::byte> payload = encode(enrolment);
  const MessageKey no_key;
  const auto left = [&](const Error& error) {
    return peer_error(step.rank, "rank ", step.rank, step.rank == 0 ? " (the rendezvous)" : "",
                      " left before all ranks had connected (", error.message, ")");
  };
  Status sent = co_await channel->write(FrameKind::enrol, no_key, payload, deadline_ns_);
  if (!sent.ok()) co_return left(sent.error());
  Result<Frame> frame = co_await channel->read(0, deadline_ns_);
  if (!frame.ok() && frame.error().timed_out)
    co_return timeout_error(step.rank, "the bootstrap of rank ", options_.rank, " ended after ",
                            format_duration_ns(options_.timeout_ns), ": rank ", step.rank,
                            " did not let it in");
  if (!frame.ok()) co_return left(frame.error());
  co_return take(*frame, std::move(channel), step);
}

Result<bool> Joining::take(const Frame& frame, std::unique_ptr<Channel> channel, Step& step) {
  const int from = step.rank;
  if (frame.header.kind == FrameKind::failure) {
    const Result<ToldFailure> told = decode_failure(frame.payload, options_.world_size);
    return told.ok() ? told.value().error : told.error();
  }
  if (frame.header.kind == FrameKind::introduce && from == tree_->parent()) {
    UNISONO_ASSIGN(const Introduction introduction, decode_introduction(frame.payload));
    if (introduction.job == 0) return peer_error(from, "rank ", from, " introduced job 0");
    node_->set_address(from, channel->peer_address().text());
    const Key key = channel->wrap(introduction.wrapped_key);
    node_->add_link(from, std::move(channel));
    set_job(introduction.job, key);
    return true;
  }
  const auto& above = tree_->ancestors();
  const auto here = std::ranges::find(above, from);
  if (frame.header.kind == FrameKind::redirect && from != tree_->parent()) {
    UNISONO_ASSIGN(const std::string text, decode_redirect(frame.payload));
    if (text.empty()) return false;
    UNISONO_ASSIGN(const sys::Address next, sys::Address::parse(text));
    step = {*std::next(here), next};
    return false;
  }
  return peer_error(from, "rank ", from, " sent frame kind ", static_cast<int>(frame.header.kind),
                    ", which was not expected here; is it another version of unisono?");
}

}  // namespace

sys::Task<Result<Joined>> join_job(sys::World& world, BootstrapOptions options,
                                   SelfDescription self, std::unique_ptr<sys::Listener> listener) {
  Joining joining(world, std::move(options), std::move(self), std::move(listener));
  Result<Joined> joined = co_await joining.run();
  co_return std::move(joined);
}

}  // namespace unisono::comm
