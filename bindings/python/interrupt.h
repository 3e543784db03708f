// Ctrl-C while native code waits.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "sys/thread.h"

namespace unisono::python {

// Installs the hook of <unisono/interrupt.h>.
void answer_interrupts();

// Runs Python's signal handlers if this is the main thread; true when one raised: the exception is
// set in this thread. The GIL is taken if this thread lacks it.
bool interrupted();

// Calls f without the GIL. An exception that a signal handler raised meanwhile goes before the
// result.
template <class F>
auto without_gil(F&& f) {
  auto result = [&] {
    const nanobind::gil_scoped_release release;
    return f();
  }();
  if (PyErr_Occurred()) throw nanobind::python_error();
  return result;
}

bool is_main_thread();

// For commands, which have nothing to lose but themselves: from now on the process ends, with
// status 130, where SIGINT has not ended it within `unanswered_after`, whatever its threads are
// doing. Python runs its handlers between two of its instructions only. The descriptor to give to
// signal.set_wakeup_fd.
inline constexpr std::chrono::milliseconds unanswered_after{100};
int end_when_interrupted();

// The same for calls that do not ask the hook: in the main thread, f runs in a thread of its own
// while this one looks for signals. Once a handler raised, `give_up` is called, which must make f
// return soon; without one f is left to its own deadlines. So f must own all that it uses. Where no
// thread can be had, f runs in this one, and handlers run when it has returned.
template <class F, class G = std::nullptr_t>
auto interruptible(F f, G give_up = nullptr) {
  using Outcome = decltype(f());
  if (!is_main_thread()) return without_gil(f);
  return without_gil([&] {
    const auto task = std::make_shared<std::packaged_task<Outcome()>>(std::move(f));
    std::future<Outcome> outcome = task->get_future();
    auto started = sys::start_thread("looks for Ctrl-C", [task] { (*task)(); });
    if (!started.ok()) {
      (*task)();
      return outcome.get();
    }
    std::thread runner = std::move(*started);
    bool raised = false;
    while (outcome.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (raised || !interrupted()) continue;
      raised = true;
      if constexpr (std::is_same_v<G, std::nullptr_t>)
        break;
      else
        give_up();
    }
    if (outcome.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      runner.detach();
      const nanobind::gil_scoped_acquire acquire;
      throw nanobind::python_error();
    }
    runner.join();
    return outcome.get();
  });
}

}  // namespace unisono::python
