#include "sys/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace unisono::sys {

std::atomic<std::uint32_t> forks{0};

namespace {

// Never destroyed: descriptors of static storage may go after any object here.
struct Kept {
  std::mutex mutex;
  std::vector<int> descriptors;
};
Kept& kept() {
  static auto* const only = new Kept;
  return *only;
}

// The mutex is held while the process forks, so that the child finds the list whole.
[[maybe_unused]] const int registered =
    pthread_atfork([] { kept().mutex.lock(); }, [] { kept().mutex.unlock(); },
                   [] {
                     forks.fetch_add(1, std::memory_order_relaxed);
                     for (const int descriptor : kept().descriptors) ::close(descriptor);
                     kept().descriptors.clear();
                     kept().mutex.unlock();
                   });

}  // namespace

void keep_from_children(int descriptor) {
  const std::lock_guard lock(kept().mutex);
  kept().descriptors.push_back(descriptor);
}

void close_kept(int descriptor) {
  const std::lock_guard lock(kept().mutex);
  if (std::erase(kept().descriptors, descriptor) > 0) ::close(descriptor);
}

}  // namespace unisono::sys
