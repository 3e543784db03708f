#include "symbolizer.h"

#include <Python.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace unisono::pytorch {
namespace {

constexpr const char* traces_variable = "TORCH_INCLUDE_STACK_TRACE";
// A thread that runs Python passes its lock on after 5 ms. One that keeps it for so long is in a
// call that does not let go of it, and may be what hangs.
constexpr std::chrono::seconds lock_patience(5);
constexpr std::chrono::seconds import_patience(30);

enum class Stage { none, awaits_lock, imports, over };

// Never destroyed: the thread may outlive static objects.
struct Preparation {
  std::mutex mutex;
  std::condition_variable changed;
  Stage stage = Stage::none;
  Deadline lock_deadline, import_deadline;

  void enter(Stage next) {
    const std::lock_guard lock(mutex);
    stage = next;
    changed.notify_all();
  }

  // In the C API alone: if the interpreter ends meanwhile it ends this thread, and C++ objects that
  // need its lock would abort the process then.
  void run() {
    if (Py_IsInitialized()) {
      const PyGILState_STATE state = PyGILState_Ensure();
      enter(Stage::imports);
      if (PyObject* const torch = PyImport_ImportModule("torch")) {
        PyObject_HasAttrString(torch, "_inductor");  // imports it, as PyTorch does
        Py_DECREF(torch);
      }
      PyErr_Clear();
      PyGILState_Release(state);
    }
    enter(Stage::over);
  }

  // With the lock held.
  void start() {
    lock_deadline = deadline_after(lock_patience);
    import_deadline = deadline_after(import_patience);
    try {
      std::thread([this] { run(); }).detach();
      stage = Stage::awaits_lock;
    } catch (const std::system_error& error) {
      TORCH_WARN("there is no thread to prepare stack traces: ", error.what());
    }
  }
};

Preparation& the_preparation() {
  static auto* const preparation = new Preparation;
  return *preparation;
}

}  // namespace

void prepare_stack_traces() {
  if (!c10d::getCvarBool({traces_variable}, true)) return;
  Preparation& it = the_preparation();
  std::unique_lock lock(it.mutex);
  if (it.stage == Stage::none) it.start();
  it.changed.wait_until(lock, it.lock_deadline, [&it] { return it.stage != Stage::awaits_lock; });
  if (it.stage == Stage::imports)
    it.changed.wait_until(lock, it.import_deadline, [&it] { return it.stage == Stage::over; });
  if (it.stage != Stage::over) c10::utils::set_env(traces_variable, "0");
}

void await_stack_traces(Deadline deadline) {
  Preparation& it = the_preparation();
  std::unique_lock lock(it.mutex);
  const auto rests = [&it] { return it.stage == Stage::none || it.stage == Stage::over; };
  it.changed.wait_until(lock, deadline, rests);
}

}  // namespace unisono::pytorch
