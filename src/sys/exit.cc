#include "sys/exit.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace unisono::sys {
namespace {

struct ExitAction {
  const AtExit* owner;
  const std::function<void()>* action;
};
// Never destroyed: objects of static storage may go after anything here.
struct All {
  std::mutex mutex;
  std::vector<ExitAction> actions;
  pid_t process = 0;
};
All& all() {
  static auto* const only = new All;
  return *only;
}

void run_all() {
  const std::lock_guard lock(all().mutex);
  if (all().process != getpid()) return;
  for (std::size_t i = all().actions.size(); i-- > 0;) (*all().actions[i].action)();
  all().actions.clear();
}

}  // namespace

AtExit::AtExit(std::function<void()> action) : action_(std::move(action)) {
  const std::lock_guard lock(all().mutex);
  if (std::exchange(all().process, getpid()) != getpid()) {
    all().actions.clear();
    std::atexit(run_all);
  }
  all().actions.push_back({this, &action_});
}

AtExit::~AtExit() {
  const std::lock_guard lock(all().mutex);
  std::erase_if(all().actions, [this](const ExitAction& one) { return one.owner == this; });
}

}  // namespace unisono::sys
