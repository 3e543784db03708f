// Daemon threads at the end of the process.
//
// Before 3.14, Python ends a daemon thread that asks for the GIL after the interpreter has begun to
// finalize: it calls pthread_exit, which unwinds the thread's stack. C++ code cannot bear that. A
// destructor that takes the GIL again, as those of nanobind, pybind11 and PyTorch do, is noexcept,
// so std::terminate ends the whole process with SIGABRT. nanobind catches all that a bound function
// throws and takes it for an exception. Python 3.14 holds such a thread for ever, and so does this.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "bind.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// Written before the interpreter finalizes, by the thread that does it; read after that.
pthread_t finalizing_thread;
std::terminate_handler others = nullptr;

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

[[noreturn]] void hold() {
  for (;;) pause();
}

// No C++ exception is handled while pthread_exit unwinds the stack.
[[noreturn]] void hold_or_terminate() {
  const bool is_daemon = is_finalizing() && pthread_equal(pthread_self(), finalizing_thread) == 0;
  if (is_daemon && !std::current_exception()) hold();
  if (others != nullptr) others();
  std::abort();
}

// nanobind asks its translators for each exception. What pthread_exit throws is none of C++, so it
// arrives as a null pointer.
void hold_if_ended(const std::exception_ptr& exception, void*) {
  if (!exception) hold();
  std::rethrow_exception(exception);
}

void hold_daemon_threads() {
  finalizing_thread = pthread_self();
  const std::terminate_handler before = std::set_terminate(&hold_or_terminate);
  if (before != &hold_or_terminate) others = before;
}

}  // namespace

void bind_exit(nb::module_& module) {
  module.def("hold_daemon_threads", &hold_daemon_threads);
  nb::register_exception_translator(&hold_if_ended);
}

}  // namespace unisono::python
