// A communicator's rests: suspended, it gives back its device memory; drained, all that it has.

#include "base/error.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/dump.h"
#include "comm/run/backoff.h"

namespace unisono {

// Every pending call has its own deadline, so this wait ends.
void Communicator::Core::wait_until_idle() {
  comm::Backoff backoff(scheduler->world(), 0);
  while (!scheduler->idle() || (device() != nullptr && device()->connections().is_busy())) {
    scheduler->help();
    backoff.step();
  }
}

Status Communicator::Core::drain() {
  if (window_service) window_service->stop();
  for (;;) {
    wait_until_idle();
    const comm::Scheduler::Pause pause(*scheduler);
    // A call that ran inline may wait by now.
    if (!scheduler->idle()) continue;
    // The others will find that this rank left; its record says what it did before.
    if (status_page->is_awaited() && scheduler->failure().ok())
      comm::dump_to_directory(*this, "left");
    // One that was never completely made has no group.
    if (group != nullptr) group->call_state().has_left.store(true, std::memory_order_relaxed);
    if (device() != nullptr) device()->close();
    host->close();
    status_page->leave(comm::StatusPage::Departure::destroyed);
    return {};
  }
}

// Between the barriers nobody uses connections: before the first one all ranks have ended their
// calls, and after the second one all have closed.
Status Communicator::Core::suspend() {
  UNISONO_TRY(usable());
  const std::int64_t timeout = job->bootstrap_timeout_ns();
  wait_until_idle();
  UNISONO_TRY(group->barrier(timeout));
  {
    const comm::Scheduler::Pause pause(*scheduler);
    suspended.store(true, std::memory_order_release);
    if (device() != nullptr) device()->suspend();
  }
  UNISONO_TRY(group->barrier(timeout));
  // Lets go of what peers could still store to.
  return device() != nullptr ? device()->connections().progress() : Status();
}

Status Communicator::Core::resume() {
  UNISONO_TRY(check_process());
  if (!suspended.load(std::memory_order_acquire))
    return misuse("communicator ", id, " is not suspended on rank ", rank);
  UNISONO_TRY(scheduler->failure());
  {
    const comm::Scheduler::Pause pause(*scheduler);
    if (device() != nullptr) UNISONO_TRY(device()->resume(registered_));
  }
  UNISONO_TRY(group->barrier(job->bootstrap_timeout_ns()));
  suspended.store(false, std::memory_order_release);
  return {};
}

}  // namespace unisono
