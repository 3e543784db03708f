// A process that lets every other of its user read its memory says so to the kernel only where
// ranks need it.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <vector>

#include "base/settings.h"
#include "base/str.h"
#include "support/forked_ranks.h"
#include "support/sanitized.h"

namespace {
int times_allowed = 0;
}

#ifndef UNISONO_SANITIZED
// In the C library's place.
extern "C" int prctl(int option, ...) noexcept {
  std::va_list list;
  va_start(list, option);
  unsigned long argument[4];
  for (unsigned long& each : argument) each = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_PTRACER) ++times_allowed;
  return static_cast<int>(
      syscall(SYS_prctl, option, argument[0], argument[1], argument[2], argument[3]));
}
#endif

namespace unisono {
namespace {

struct Shape {
  const char* name;
  int ranks = 2;
  const char* zero_copy = "1";
  const char* transport = "";
  bool on_nodes_of_their_own = false;
  bool has_window = false;
  bool needs_it = false;
};

std::string use(Communicator& communicator, bool has_window) {
  std::vector<float> memory(100);
  if (has_window) {
    auto window = communicator.make_window(memory.data(), memory.size() * sizeof(float));
    if (!window.ok()) return window.error().describe();
  }
  if (auto wrong = test::reduce(communicator, 1 << 20); !wrong.empty()) return wrong;
  return times_allowed > 0 ? "allowed" : "not allowed";
}

TEST(Ptracer, IsAnyOnlyWhereAnotherProcessReadsMemory) {
  if (test::is_sanitized) GTEST_SKIP() << "a sanitizer has its own prctl";
  for (const Shape& shape :
       {Shape{.name = "zero-copy on one node", .needs_it = true},
        Shape{.name = "zero-copy over shared memory", .transport = "shm", .needs_it = true},
        Shape{.name = "no zero-copy", .zero_copy = "0"},
        Shape{.name = "sockets alone", .transport = "socket"},
        Shape{.name = "nodes apart", .on_nodes_of_their_own = true},
        Shape{.name = "one rank", .ranks = 1},
        Shape{.name = "a window of one rank", .ranks = 1, .has_window = true},
        Shape{.name = "a window beside another rank",
              .zero_copy = "0",
              .has_window = true,
              .needs_it = true}}) {
    const auto ended = test::run_forked(
        shape.ranks, [&](Communicator& each) { return use(each, shape.has_window); },
        [&](int rank, InitOptions& options) {
          options.settings = {{"UNISONO_ZERO_COPY", shape.zero_copy}};
          options.transport = shape.transport;
          if (shape.on_nodes_of_their_own) options.node = str("node", rank);
          times_allowed = 0;
        });
    for (const test::Ended& each : ended)
      EXPECT_EQ(each.said, shape.needs_it ? "allowed" : "not allowed") << shape.name;
  }
}

}  // namespace
}  // namespace unisono
