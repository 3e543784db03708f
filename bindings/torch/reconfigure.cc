// New members for a group, PyTorch's interface for fault tolerance (2.14 and newer). A handle is an
// invitation to this process. The first rank's is the one that all take. It admits once: it is
// withdrawn when the reconfigure() that it was made for is over, or the group.

#include "backend.h"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <algorithm>
#include <sstream>
#include <string_view>
#include <tuple>
#include <variant>

#include "errors.h"
#include "gil.h"

namespace unisono::pytorch {
namespace {

constexpr std::string_view handle_kind = "unisono-1";

// What this group cannot do now, or with these handles: PyTorch's backends raise a RuntimeError.
template <class... Parts>
[[noreturn]] void refuse_members(const Parts&... parts) {
  refuse_state(c10::str(parts...));
}

struct Peer {
  std::string handle;
  int rank = 0;  // the one that it had
  Invitation invitation;
};

Peer peer_of(const std::string& handle, const Site& site) {
  Peer peer{.handle = handle};
  std::istringstream in(handle);
  std::string kind, more;
  if (in >> kind >> peer.rank >> peer.invitation.rendezvous >> peer.invitation.secret &&
      kind == handle_kind && !(in >> more))
    return peer;
  refuse_members("Invalid unisono reconfigure handle: ", site.text(), " got a handle of ",
                 handle.size(),
                 " characters, which are not shown because a part may be a secret"
                 "; handles are what get_reconfigure_handle() of groups of Unisono returns");
}

// In the order of their ranks: the caller's, or that of the ranks that they had.
std::vector<Peer> peers_of(const c10d::ReconfigureOptions& options, const Site& site) {
  std::vector<Peer> peers;
  std::visit(
      [&](const auto& handles) {
        for (const auto& handle : handles) peers.push_back(peer_of(handle, site));
      },
      options.handles);
  const auto order = [](const Peer& peer) { return std::tie(peer.rank, peer.handle); };
  if (!std::holds_alternative<std::vector<c10d::ReconfigureHandle>>(options.handles))
    std::ranges::sort(peers, {}, order);
  for (std::size_t i = 0; i < peers.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (peers[i].handle == peers[j].handle)
        refuse_members(site.text(), " got one handle for the ranks ", j, " and ", i,
                       "; reconfigure handles must be unique: each process has its own");
  return peers;
}

}  // namespace

c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
  if (!handle_.empty()) return handle_;
  invitation_ =
      pytorch::take(invite({.interface = joining_.interface}), where("get_reconfigure_handle"));
  std::ostringstream out;
  out << handle_kind << " " << rank_ << " " << invitation_.rendezvous << " " << invitation_.secret;
  return handle_ = out.str();
}

void Backend::end_handle() {
  withdraw(invitation_);
  invitation_ = {};
  handle_.clear();
}

Backend::Started Backend::reconfigure(const c10d::ReconfigureOptions& options) {
  const char* const name = "reconfigure";
  const Site here = site(name);
  if (is_shut_) refuse_state(where(name) + ": the group was destroyed");
  if (used_.contains(options.uuid))
    refuse_members(here.text(), " got the uuid ", options.uuid,
                   ", which was already used by the group; give a new one each time");
  const std::vector<Peer> peers = peers_of(options, here);
  const auto own = std::ranges::find(peers, handle_, &Peer::handle);
  if (handle_.empty() || own == peers.end())
    refuse_members(here.text(), " got ", peers.size(),
                   " handles, and none is this rank's newest, so that it is not part of the new "
                   "communicator: each reconfigure() takes handles that were asked for after the "
                   "one before it");
  const WithoutGil release;
  communicator_.abort();
  end_what_is_pending(deadline_after(timeout_.load()));
  replace({});
  used_.insert(options.uuid);
  InitOptions joining = joining_;
  joining.rank = static_cast<int>(own - peers.begin());
  joining.world_size = static_cast<int>(peers.size());
  if (peers.size() > 1) {
    joining.rendezvous = peers[0].invitation.rendezvous;
    joining.secret = peers[0].invitation.secret;
  }
  joining.timeout = timeout_.load();
  joining.bootstrap_timeout = options.timeout.value_or(timeout_.load());
  auto joined = Communicator::init(joining);
  end_handle();
  replace(take(std::move(joined), name));
  return begun(follow(c10d::OpType::UNKNOWN, name, {}), {});
}

void Backend::replace(Communicator communicator) {
  communicator_ = std::move(communicator);
  if (communicator_.valid()) {
    rank_ = communicator_.rank();
    size_ = communicator_.size();
  }
  global_ranks_.clear();
  place_ = make_place();
  fate_ = std::make_shared<Fate>(communicator_);
  hooks_->watch(fate_);
  {
    const std::lock_guard lock(device_mutex_);
    device_.reset();
  }
  batches_.clear();
  split_store_.reset();
  sequence_ = 0;
}

}  // namespace unisono::pytorch

#endif
