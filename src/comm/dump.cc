#include "comm/dump.h"

#include <semaphore.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "comm/core.h"
#include "sys/fork.h"
#include "sys/thread.h"

namespace unisono::comm {
namespace {

// Lives as long as the process: its thread may wait in it when static objects are destroyed.
class Registry {
 public:
  static Registry& instance() {
    static Registry* registry = new Registry;
    return *registry;
  }

  void add(const std::shared_ptr<Communicator::Core>& core) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(forks_, sys::fork_count()) != sys::fork_count()) {
      // A parent's communicators are its own to write down, and its thread is not here.
      cores_.clear();
      start();
    }
    std::erase_if(cores_, [](const auto& known) { return known.expired(); });
    cores_.push_back(core);
  }

  void dump_all() {
    std::vector<std::shared_ptr<Communicator::Core>> living;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& known : cores_)
        if (auto core = known.lock()) living.push_back(std::move(core));
    }
    for (const auto& core : living) dump_to_directory(*core);
  }

 private:
  Registry() { start(); }

  void start() {
    const auto number = static_cast<int>(settings().integer(Setting::dump_signal));
    if (number == 0) return;
    sem_init(&requests_, 0, 0);
    auto thread = sys::start_thread("answers UNISONO_DUMP_SIGNAL", [this] {
      while (true)
        if (sem_wait(&requests_) == 0) dump_all();
    });
    if (!thread.ok()) {
      log(LogLevel::error, thread.error().message);
      return;
    }
    thread->detach();
    struct sigaction action{};
    action.sa_handler = [](int) {
      const int saved = errno;
      sem_post(&Registry::instance().requests_);  // may be called in a signal handler
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    if (sigaction(number, &action, nullptr) != 0)
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number, " cannot be handled");
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Communicator::Core>> cores_;
  std::uint32_t forks_ = sys::fork_count();
  sem_t requests_{};
};

}  // namespace

void register_for_dumps(const std::shared_ptr<Communicator::Core>& core) {
  Registry::instance().add(core);
}

std::string record_json(const Communicator::Core& core) {
  return trace::to_json(core.owner(), core.scheduler->record().read());
}

std::string dump_to_directory(const Communicator::Core& core) {
  const std::string& directory = settings().text(Setting::dump_directory);
  if (directory.empty()) return {};
  const std::string path = str(directory, "/unisono-", core.id, "-", core.rank, ".json");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << record_json(core);
  if (!file.good()) log(LogLevel::error, "cannot write the record to ", path);
  return path;
}

}  // namespace unisono::comm
