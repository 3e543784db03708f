#include "comm/exit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <ranges>
#include <utility>
#include <vector>

namespace unisono::comm {
namespace {

struct Registered {
  const AtExit* owner;
  const std::function<void()>* action;
};
// Never destroyed: objects of static storage may go after anything here.
struct All {
  std::mutex mutex;
  std::vector<Registered> registered;
  pid_t process = 0;
};
All& all() {
  static auto* const only = new All;
  return *only;
}

void run_all() {
  const std::lock_guard lock(all().mutex);
  if (all().process != getpid()) return;
  for (const Registered& one : all().registered | std::views::reverse) (*one.action)();
  all().registered.clear();
}

}  // namespace

AtExit::AtExit(std::function<void()> action) : action_(std::move(action)) {
  const std::lock_guard lock(all().mutex);
  if (std::exchange(all().process, getpid()) != getpid()) {
    all().registered.clear();
    std::atexit(run_all);
  }
  all().registered.push_back({this, &action_});
}

AtExit::~AtExit() {
  const std::lock_guard lock(all().mutex);
  std::erase_if(all().registered, [this](const Registered& one) { return one.owner == this; });
}

}  // namespace unisono::comm
