// How a rank finds its parent in the tree, from the rendezvous downwards.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/try.h"
#include "base/units.h"
#include "comm/join/joining.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t millisecond_ns = 1'000'000;
constexpr std::int64_t attempt_timeout_ns = 10'000 * millisecond_ns;
constexpr std::size_t max_secret_bytes = 256;
constexpr std::int64_t first_pause_ns = 10 * millisecond_ns;
constexpr std::int64_t max_pause_ns = 500 * millisecond_ns;
// Ranks, or hosts of them, with a common first address come one after another, but for the first
// ones. A visit takes less than this time of the visited rank's processor
// (bench/results/init_scale.txt).
constexpr int most_at_once = 4;
constexpr std::int64_t turn_ns = millisecond_ns / 10;
// So often a rank looks for its gate before it asks rank 0, too: for half a second.
constexpr int most_for_gate = 6;
// Of the timeout: so long a rank waits on its host before it asks rank 0 itself, which then knows
// that it has come.
constexpr std::int64_t host_wait_part = 8;

}  // namespace

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

sys::Task<Attempt> Joining::connect(const Step& step, std::int64_t deadline_ns) {
  const Result<sys::Address> address = address_of(step);
  if (!address.ok()) {
    Attempt not_made;
    not_made.fail(address.error());
    co_return std::move(not_made);
  }
  const Destination where{*address, Purpose::enrolment, own_key(), wire()};
  Attempt attempt = co_await dial_once(world_, where, deadline_ns, deadline_ns);
  if (attempt.is_connected && !step.is_host) reaching_.succeeded();
  co_return std::move(attempt);
}

sys::Task<Result<Directions>> Joining::visit(const Step& step, std::int64_t deadline_ns,
                                             Attempt& attempt) {
  if (step.is_host)
    deadline_ns = std::min(deadline_ns, world_.now_ns() + options_.timeout_ns / host_wait_part);
  const Result<sys::Address> address = address_of(step);
  if (!address.ok()) {
    attempt.fail(address.error());
    co_return address.error();
  }
  const Visitor asked{static_cast<std::uint32_t>(options_.rank),
                      static_cast<std::uint32_t>(options_.world_size)};
  const Destination where{*address, Purpose::enrolment, own_key(), wire()};
  Result<Directions> directions =
      co_await dial_for_directions(world_, where, asked, deadline_ns, attempt);
  if (attempt.is_connected && !step.is_host) reaching_.succeeded();
  if (directions.ok() && host_ && step.rank == 0 && directions->kind == Directions::Kind::next)
    host_->tell(*directions);
  co_return std::move(directions);
}

// The way leads down the tree; from this host, or from a child of rank 0, to any child of rank 0.
Status Joining::follow(const Directions& directions, Step& step) {
  if (directions.kind == Directions::Kind::come_again) return {};
  if (directions.kind == Directions::Kind::enrol) {
    if (step.is_host) step = {};
    step.enrols = true;
    return {};
  }
  const TreePlace root(0, options_.world_size, options_.fan_out);
  const auto rank = Rank::among(directions.rank, options_.world_size);
  const auto& above = tree_->ancestors();
  const auto depth_of = [&](int one) {
    const auto found = std::ranges::find(above, one);
    return found == above.end() ? -1 : std::distance(above.begin(), found);
  };
  const bool is_guide = rank && step.is_host && root.is_child(rank->number());
  const bool is_nearer =
      rank && depth_of(rank->number()) > std::max<std::ptrdiff_t>(depth_of(step.rank), 0);
  if (!is_guide && !is_nearer)
    return peer_error(step.rank, "rank ", step.rank, " sent rank ", options_.rank, " on to rank ",
                      directions.rank, ", which is not on its way");
  UNISONO_ASSIGN(sys::Address address, sys::Address::parse(directions.address));
  step = {rank->number(), std::move(address)};
  return {};
}

// Where this rank begins: on its host, if another rank there takes the way to rank 0.
Joining::Step Joining::first_step() {
  if (gathers_ && !host_) {
    secret_ = options_.secret;
    const sys::Address name = HostRendezvous::name(own_key(), options_.rendezvous);
    host_ = HostRendezvous::open(world_, name, own_key(), options_.world_size);
    if (!host_) return {.rank = 0, .address = name, .is_host = true};
  }
  return {.rank = gate_of_this_rank()};
}

// How long a rank waits before it begins, which so many ranks do together. Where ranks gather on
// their hosts, those below different children of rank 0 take turns, after these children.
std::int64_t Joining::wait_of(int rank, std::int64_t together) const {
  if (!gathers_) return std::max(rank - gate_of_this_rank() - 1 - most_at_once, 0) * turn_ns;
  const std::vector<RankRange> children = divide({0, options_.world_size}, options_.fan_out);
  const auto above = std::ranges::find_if(
      children, [rank](const RankRange& child) { return child.contains(rank); });
  const std::int64_t before = rank - above->first - 1;
  return (std::distance(children.begin(), above) + std::ssize(children)) * turn_ns +
         before * std::ssize(children) * turn_ns / together;
}

// A host comes when the first of its ranks would, and the earlier, the more have gathered there.
sys::Task<Status> Joining::wait_for_turn() {
  if (is_gate() || (is_gathered() && !host_)) co_return Status();
  const std::int64_t began_ns = world_.now_ns();
  sys::WaitQueue nothing;
  for (;;) {
    const std::int64_t together = host_ ? std::ssize(host_->visitors()) + 1 : 1;
    std::int64_t wait_ns = wait_of(options_.rank, together);
    if (host_)
      for (const int visitor : host_->visitors())
        wait_ns = std::min(wait_ns, wait_of(visitor, together));
    const std::int64_t until_ns = std::min(deadline_ns_, began_ns + wait_ns);
    if (world_.now_ns() >= until_ns) co_return Status();
    sys::Wait turn(world_.scheduler(), host_ ? host_->changed() : nothing, until_ns);
    co_await turn;
  }
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
  // All ranks together do not come more often than in turns.
  pause_ns = std::min(2 * pause_ns, std::max(max_pause_ns, options_.world_size * turn_ns));
  co_return Status();
}

// Tries until the deadline: ranks above may start later, and an old job's file may lie in the way.
sys::Task<Status> Joining::reach_parent() {
  gathers_ = is_gathered() && tree_->depth() > 1;
  Step step = first_step();
  Status waited = co_await wait_for_turn();
  std::string why;
  std::int64_t pause_ns = first_pause_ns;
  for (int attempt = 1; waited.ok() && world_.now_ns() < deadline_ns_; ++attempt) {
    const std::int64_t attempt_ns = std::min(deadline_ns_, world_.now_ns() + attempt_timeout_ns);
    Attempt tried;
    if (step.enrols || (!step.is_host && step.rank == tree_->parent())) {
      tried = co_await connect(step, attempt_ns);
      if (tried.channel) {
        Status enrolled = co_await enrol(std::move(tried.channel), step.rank);
        co_return std::move(enrolled);
      }
    } else {
      Result<Directions> directions = co_await visit(step, attempt_ns, tried);
      if (directions.ok()) {
        why = str("rank ", step.rank, " waits for a rank above this one");
        Status followed = follow(*directions, step);
        if (!followed.ok()) co_return std::move(followed);
        if (directions->kind == Directions::Kind::come_again)
          waited = co_await pause(pause_ns);
        else
          pause_ns = first_pause_ns;
        continue;
      }
    }
    if (tried.refusal == Refusal::disagree) co_return tried.why;
    why = tried.why.message;
    if (tried.is_starved) co_return own_limit(options_.rank, tried.why);
    // Strangers of this host may hold the name; and its holder may have gone.
    if (step.is_host)
      gathers_ = false;
    else if (tried.refusal == Refusal::secret && !place_.is_file)
      co_return environment_error(why);
    if (!step.is_host)
      if (const auto given_up = reaching_.failed(why, world_.now_ns())) co_return *given_up;
    // Strangers may have taken this rank's place; the next attempt may have more luck.
    if (tried.refusal == Refusal::dropped) pause_ns = first_pause_ns;
    waited = co_await pause(pause_ns);
    // Rank 0 tells it when a gate has not come for long, or has gone.
    step = attempt < most_for_gate || attempt % 2 == 0 ? first_step() : Step{};
  }
  if (!waited.ok()) co_return std::move(waited);
  co_return timeout_error(0, "rank ", options_.rank, " did not reach the rendezvous (rank 0) at ",
                          options_.rendezvous, " within ", format_duration_ns(options_.timeout_ns),
                          "; the last attempt: ", why);
}

// Returns when this rank is linked to its parent, or the rank it enrols at has told it an error.
sys::Task<Status> Joining::enrol(std::unique_ptr<Channel> channel, int at) {
  if (!node_->is_started()) {
    sys::Address where{channel->local_address().host, 0};
    if (!options_.interface.empty()) where.host = options_.interface;
    Result<std::unique_ptr<sys::Listener>> listener = world_.listen(where);
    Status started;
    if (listener.ok())
      started = start_node(std::move(*listener));
    else if (!options_.failure)
      options_.failure = listener.error();
    if (!started.ok()) co_return std::move(started);
  }
  Enrolment enrolment;
  enrolment.rank = static_cast<std::uint32_t>(options_.rank);
  enrolment.world_size = static_cast<std::uint32_t>(options_.world_size);
  enrolment.address = (node_->is_started() ? node_->address() : channel->local_address()).text();
  const std::vector<std::byte> payload = encode(enrolment);
  const MessageKey no_key;
  const auto left = [&](const Error& error) {
    return peer_error(at, "rank ", at, at == 0 ? " (the rendezvous)" : "",
                      " left before all ranks had connected (", error.message, ")");
  };
  Status sent = co_await channel->write(FrameKind::enrol, no_key, payload, deadline_ns_);
  if (!sent.ok()) co_return left(sent.error());
  Result<Frame> frame = co_await channel->read(0, deadline_ns_);
  if (!frame.ok() && frame.error().timed_out)
    co_return timeout_error(at, "the bootstrap of rank ", options_.rank, " ended after ",
                            format_duration_ns(options_.timeout_ns), ": rank ", at,
                            " did not let it in");
  if (!frame.ok()) co_return left(frame.error());
  co_return take(*frame, std::move(channel), at);
}

Status Joining::take(const Frame& frame, std::unique_ptr<Channel> channel, int from) {
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
    return {};
  }
  return peer_error(from, "rank ", from, " sent frame kind ", static_cast<int>(frame.header.kind),
                    ", which was not expected here; is it another version of unisono?");
}

}  // namespace unisono::comm
