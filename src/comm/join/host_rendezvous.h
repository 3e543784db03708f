// Where the ranks of one host gather on their way to a tcp:// rendezvous. One of them holds a name
// of the host, takes the way to rank 0 for all, and tells the others where to go on; so rank 0 is
// visited by each host, not by each rank. The name follows from the secret, and goes with its
// holder.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/key.h"
#include "comm/control/handshake.h"
#include "sys/accepting.h"
#include "sys/world.h"

namespace unisono::comm {

class HostRendezvous final : sys::Admissions {
 public:
  // `key` is an enrolment's.
  static sys::Address name(const Key& key, std::string_view rendezvous);
  // Null where another process holds the name, or there can be none.
  static std::unique_ptr<HostRendezvous> open(sys::World& world, const sys::Address& name,
                                              const Key& key, int ranks);
  ~HostRendezvous() { tasks_.cancel_all(); }
  HostRendezvous(const HostRendezvous&) = delete;
  HostRendezvous& operator=(const HostRendezvous&) = delete;

  // Where visitors go on, those that wait and those to come.
  void tell(const Directions& next);
  const std::set<int>& visitors() const { return visitors_; }
  // Notified when another one has come.
  sys::WaitQueue& changed() { return changed_; }

 private:
  HostRendezvous(sys::World& world, std::unique_ptr<sys::Listener> listener,
                 std::unique_ptr<Doorkeeper> doorkeeper, int ranks)
      : world_(world),
        listener_(std::move(listener)),
        doorkeeper_(std::move(doorkeeper)),
        ranks_(ranks) {}
  void on_admitted(sys::Admitted admitted) override;
  sys::Task<void> serve(sys::Admitted admitted, Visitor visitor);

  sys::World& world_;
  const std::unique_ptr<sys::Listener> listener_;
  const std::unique_ptr<Doorkeeper> doorkeeper_;
  const int ranks_;
  std::set<int> visitors_;
  int waiting_ = 0;
  std::int64_t answer_ns_ = 0;  // when the latest visitor goes on
  std::optional<Directions> next_;
  sys::WaitQueue changed_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

}  // namespace unisono::comm
