#include "interrupt.h"

#include <fcntl.h>
#include <unisono/interrupt.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "bind.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

unsigned long main_thread = 0;

constexpr int interrupted_status = 128 + SIGINT;

// Ends the process some time after the byte of a SIGINT came.
void end_after_interrupt(int descriptor) {
  for (;;) {
    unsigned char number = 0;
    const ssize_t got = read(descriptor, &number, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    if (number != SIGINT) continue;
    std::this_thread::sleep_for(unanswered_after);
    // A progress bar has hidden the cursor.
    constexpr std::string_view shows_cursor = "\x1b[?25h\n";
    if (isatty(STDERR_FILENO) == 1)
      (void)!write(STDERR_FILENO, shows_cursor.data(), shows_cursor.size());
    _exit(interrupted_status);
  }
}

}  // namespace

bool is_main_thread() { return PyThread_get_thread_ident() == main_thread; }

bool interrupted() {
  if (!is_main_thread()) return false;
  const nb::gil_scoped_acquire acquire;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

int end_when_interrupted() {
  int ends[2];
  // Python writes from a signal handler, which must not block.
  if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
    raise(system_error("a pipe for signals", errno));
  take(sys::start_thread("ends an interrupted command", [from = ends[0]] {
    end_after_interrupt(from);
  })).detach();
  return ends[1];
}

void bind_interrupt(nb::module_& module) {
  module.def("end_when_interrupted", &end_when_interrupted);
}

void answer_interrupts() {
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  set_interrupt_check(&interrupted);
}

}  // namespace unisono::python
