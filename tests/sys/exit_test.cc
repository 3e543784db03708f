#include "sys/exit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace unisono::sys {
namespace {

std::function<void()> saying(const char* word) {
  return [word] { std::fprintf(stderr, "%s;", word); };
}

// The parent ends as its child does, without what exit() does.
void go_on_in_child() {
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WEXITSTATUS(status));
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
        go_on_in_child();
        std::exit(4);
      },
      testing::ExitedWithCode(4), "^$");
}

TEST(AtExitDeathTest, CallsWhatAForkedProcessHasRegistered) {
  EXPECT_EXIT(
      {
        const AtExit parents(saying("parent"));
        go_on_in_child();
        const AtExit own(saying("own"));
        std::exit(5);
      },
      testing::ExitedWithCode(5), "^own;$");
}

}  // namespace
}  // namespace unisono::sys
