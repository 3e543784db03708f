// How a listener takes connections: the one place that accepts, and what it does where this process
// cannot.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <optional>

#include "sys/world.h"

struct sockaddr_storage;

namespace unisono::sys {

struct Accepted {
  int descriptor = -1;  // does not block, and is closed by an exec; -1: none
  int error = 0;        // an errno: one waits, and this process cannot have it
};
// The next connection that waits at a listener; `from` may be null. Connections that their makers
// have given up meanwhile are skipped, and the soft limit of descriptors is raised before it counts
// as one.
Accepted accept_next(int listener, sockaddr_storage* from = nullptr);

// A listener whose process has no descriptor for those who wait is starved: it tries again after
// a pause, says so in the log once a minute, and tells its owner after a second. That is much
// shorter than any useful deadline, so that a call fails for this reason and not because a peer
// could not connect.
class Starvation {
 public:
  static constexpr std::int64_t pause_ns = 100'000'000;
  static constexpr std::int64_t most_ns = 1'000'000'000;

  void failed(const Error& why, std::int64_t now_ns);
  void succeeded();
  // When to try again; 0: now.
  std::int64_t next_try_ns() const { return next_try_ns_; }
  // Whether it lasts so long that calls which wait for a peer here must fail.
  bool is_lasting(std::int64_t now_ns) const;

 private:
  std::int64_t next_try_ns_ = 0;
  std::optional<std::int64_t> since_ns_;  // nothing: there are descriptors
  std::int64_t next_log_ns_ = 0;
};

// The owner of a listener handles here those who pass its gate.
class Admissions {
 public:
  virtual void on_admitted(Admitted admitted) = 0;
  // Why none can be accepted, once that lasts; null: they can again.
  virtual void on_starved(const Error* why) { static_cast<void>(why); }

 protected:
  ~Admissions() = default;
};
// Admits for ever. All that it is given must outlive the task.
Task<void> admit_all(World& world, Listener& listener, const Gate& gate, Admissions& owner);

}  // namespace unisono::sys
