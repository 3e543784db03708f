// A rank gets from the memory of others over connections of its own, registers plans of one-sided
// steps, and tries a connection of an epoch that is over.
#include <algorithm>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "chaos/data.h"
#include "chaos/one_sided.h"
#include "chaos/own_connection.h"
#include "chaos/rank.h"
#include "comm/control/node.h"

namespace unisono::chaos {
namespace {

// No call has so many channels.
constexpr std::uint32_t first_own_channel = 1 << 20;
constexpr std::uint32_t refused_channel = first_own_channel - 1;
// An epoch that never ends.
constexpr std::uint32_t last_epoch = UINT32_MAX;
// Past every delay of a healthy network.
constexpr std::int64_t refusal_ns = 100'000'000;
// In jobs where something has struck: so little that calls of others, which wait for this rank, do
// not time out.
constexpr std::int64_t harmed_timeout_ns = 30'000'000;
// Elsewhere, as long as a call has at least: no healthy rank is later.
constexpr std::int64_t healthy_timeout_ns = 200'000'000;
constexpr std::byte untouched{0x5a};

Result<std::unique_ptr<OwnConnection>> open_to(transport::Transport& network,
                                               const Communicator& group, int peer,
                                               std::uint32_t epoch, std::uint32_t channel) {
  const std::string address = str(group.world_ranks()[static_cast<std::size_t>(peer)]);
  return OwnConnection::open(network, {.key = {group.id(), epoch, channel},
                                       .ranks = group.size(),
                                       .self = group.rank(),
                                       .peer = peer,
                                       .peer_address = address,
                                       .geometry = GetRound::geometry});
}

}  // namespace

// Communicators hand their transports to nobody, so the rank makes one. It shares the job's epochs.
Status Rank::make_network() {
  const auto node = node_.lock();
  transport::TransportOptions options;
  options.key.fill(std::byte{1});
  if (node) options.epochs = node->epochs();
  UNISONO_ASSIGN(network_, surroundings_.make_network(options));
  return {};
}

// No call of the library gets from exposed memory between hosts yet. Where a get fails, the next
// call of the group tells whom it blames.
void Rank::gets(const Operation& operation, const Communicator& group) {
  if (group.size() == 1) return;
  const std::vector<int>& members = group.world_ranks();
  const int step = 1 + operation.root % (group.size() - 1);
  const int ahead = (group.rank() + step) % group.size();
  const int behind = (group.rank() + group.size() - step) % group.size();
  std::vector<std::byte> own =
      message_of(operation, members[static_cast<std::size_t>(group.rank())]);
  const int owner = members[static_cast<std::size_t>(behind)];
  const std::vector<std::byte> wanted = message_of(operation, owner);
  std::vector<std::byte> got(wanted.size(), untouched);
  const std::string what = describe(operation);
  witness_.begins(rank_, "gets", -1);
  witness_.saw(rank_, "begins " + what);
  const auto round = [&]() -> Status {
    const auto channel = first_own_channel + static_cast<std::uint32_t>(operation.number);
    UNISONO_ASSIGN(auto to, open_to(*network_, group, ahead, last_epoch, channel));
    std::unique_ptr<OwnConnection> from;
    if (ahead != behind) {
      UNISONO_ASSIGN(from, open_to(*network_, group, behind, last_epoch, channel));
    }
    const auto gives_up = [&, begun_ns = now_ns()] {
      return now_ns() - begun_ns > (witness_.has_harm() ? harmed_timeout_ns : healthy_timeout_ns);
    };
    GetRound gets(*surroundings_.world, *to, from ? *from : *to, gives_up);
    return gets.run(own, got, [&] { check(operation, got == wanted, owner); });
  };
  if (const Status status = round(); status.ok()) {
    witness_.succeeded();
  } else {
    witness_.failed();
    witness_.saw(rank_, str("fails: ", what, ": ", status.error().describe()));
    if (status.error().timed_out) witness_.timed_out();
    if (!witness_.has_harm())
      witness_.found_wrong(str("rank ", rank_, ": gets fail: ", status.error().describe()));
  }
  canaries_.keep(operation, std::move(got));
}

// A plan of one-sided steps then serves calls of the group that name no algorithm.
void Rank::register_plan(Communicator& group) {
  const std::uint64_t drawn = hash(scenario_.seed, 10, 0);
  if (group.size() == 1 || drawn % 8 != 0) return;
  const Collective collective =
      drawn / 8 % 2 == 0 ? Collective::all_gather : Collective::all_reduce;
  const std::vector<std::string> plans{one_sided_plan(collective, group.size())};
  judge("register", "registration of a plan", group, [&] { return group.register_plans(plans); });
}

// Once a rank knows that the others have left the epoch of all.
void Rank::look_for_the_past(const Communicator& group) {
  if (group.size() == 1) return;
  const int peer = (group.rank() + 1) % group.size();
  const int peer_in_job = group.world_ranks()[static_cast<std::size_t>(peer)];
  const auto refused = [&]() -> Result<bool> {
    UNISONO_ASSIGN(auto connection, open_to(*network_, group, peer, 0, refused_channel));
    return is_refused(*surroundings_.world, *connection, now_ns() + refusal_ns);
  }();
  const bool is_excused =
      !refused.ok() && (witness_.is_struck(peer_in_job) || witness_.is_struck(rank_));
  if (is_excused || (refused.ok() && *refused)) return;
  witness_.found_wrong(str("rank ", rank_, ": rank ", peer_in_job,
                           " does not refuse a connection of an epoch that is over",
                           refused.ok() ? "" : ": " + refused.error().describe()));
}

}  // namespace unisono::chaos
