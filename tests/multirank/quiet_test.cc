// The way of a small message: no allocation, no lock, no system call.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <cstdlib>

#include "support/folders.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

TEST(SmallCalls, NeitherAllocateNorLockNorCallTheSystem) {
  if (test::is_sanitized) GTEST_SKIP() << "sanitizers allocate, lock and call the system";
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  if (CPU_COUNT(&cores) < 2) GTEST_SKIP() << "one core: waiting must yield it";
  // A rank that the machine takes the core from keeps its peer waiting until that sleeps: another
  // process's doing, which a run must get by without now and then.
  constexpr int tries = 40;
  int code = 3;
  for (int i = 0; i < tries && code == 3; ++i) {
    const int status = std::system((test::build_folder() + "/quiet").c_str());
    ASSERT_TRUE(WIFEXITED(status));
    code = WEXITSTATUS(status);
  }
  if (code == 4) GTEST_SKIP() << "a process cannot forbid itself system calls here";
  EXPECT_EQ(code, 0) << "see quiet_main.cc";
}

}  // namespace
}  // namespace unisono
