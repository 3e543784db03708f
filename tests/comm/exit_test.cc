#include "comm/exit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace unisono::comm {
namespace {

std::function<void()> saying(const char* word) {
  return [word] { std::fprintf(stderr, "%s;", word); };
}

TEST(AtExitDeathTest, CallsTheLastFirstAndNobodyWhoIsGone) {
  EXPECT_EXIT(
      {
        const AtExit first(saying("first"));
        const AtExit second(saying("second"));
        {
          const AtExit gone(saying("gone"));
        }
        std::exit(3);
      },
      testing::ExitedWithCode(3), "^second;first;$");
}

TEST(AtExitDeathTest, CallsNothingInAProcessThatWasForkedLater) {
  EXPECT_EXIT(
      {
        const AtExit parents(saying("parent"));
        const pid_t child = fork();
        if (child != 0) {
          int status = 0;
          waitpid(child, &status, 0);
          _exit(WEXITSTATUS(status));
        }
        std::exit(4);
      },
      testing::ExitedWithCode(4), "^$");
}

TEST(AtExitDeathTest, CallsWhatAForkedProcessHasRegistered) {
  EXPECT_EXIT(
      {
        const AtExit parents(saying("parent"));
        const pid_t child = fork();
        if (child != 0) {
          int status = 0;
          waitpid(child, &status, 0);
          _exit(WEXITSTATUS(status));
        }
        const AtExit own(saying("own"));
        std::exit(5);
      },
      testing::ExitedWithCode(5), "^own;$");
}

}  // namespace
}  // namespace unisono::comm
