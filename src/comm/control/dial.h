// How this process connects to another one and proves a key to it: ranks that join, links, surveys,
// and those who follow an invitation. Callers differ in what an attempt that failed means.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>

#include "base/key.h"
#include "comm/control/channel.h"
#include "comm/control/handshake.h"
#include "sys/world.h"

namespace unisono::comm {

// Where, and what is proved there. It outlives the tasks that it is given to.
struct Destination {
  sys::Address address;
  Purpose purpose = Purpose::enrolment;
  Key key{};
  WireProtection wire;
  std::uint64_t key_number = 0;  // as in handshake.h
};

struct Attempt {
  std::unique_ptr<Channel> channel;  // null: `why` says why there is none
  Error why;
  Refusal refusal = Refusal::none;
  bool is_connected = false;  // somebody listens there
  bool is_starved = false;    // this process has no descriptors left, whatever `why` says

  void fail(const Error& with);
};

// One attempt: at most until `connect_ns` to connect, and until `proof_ns` to prove the key.
sys::Task<Attempt> dial_once(sys::World& world, const Destination& where, std::int64_t connect_ns,
                             std::int64_t proof_ns);

// The same of a visit, which ends with directions and without a channel.
sys::Task<Result<Directions>> dial_for_directions(sys::World& world, const Destination& where,
                                                  Visitor visitor, std::int64_t deadline_ns,
                                                  Attempt& attempt);

// Decides what failed attempts mean to a caller, who tries again until it has a channel.
class Persistence {
 public:
  virtual ~Persistence() = default;
  // How long one attempt may take.
  virtual std::int64_t connect_timeout_ns() const { return 10'000'000'000; }
  // Whether the other process may take until the deadline to answer once it is connected.
  virtual bool waits_for_proof() const { return false; }
  // The pause before the next attempt, or the error if there is none.
  virtual Result<std::int64_t> after(const Attempt& failed) = 0;
  // The deadline has passed.
  virtual Error too_late(const std::string& why) const = 0;
};

// Ends at once where the two sides disagree about how frames are protected, or where this process
// (`rank`) has no descriptors left: no other attempt can mend that.
sys::Task<Result<std::unique_ptr<Channel>>> dial(sys::World& world, const Destination& where,
                                                 int rank, Persistence& persistence,
                                                 std::int64_t deadline_ns);

// A limit of this process, not the peer, is why there is no connection; names this rank to all.
Error own_limit(int rank, const Error& why);

}  // namespace unisono::comm
