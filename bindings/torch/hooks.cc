#include "hooks.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <system_error>
#include <thread>

#include "gil.h"
#include "symbolizer.h"
#include "work.h"

namespace unisono::pytorch {
namespace {

constexpr std::chrono::milliseconds watch_interval(100);

// The groups with hooks, and the thread that looks at them. Never destroyed: the thread may outlive
// static objects.
struct Watch {
  std::mutex mutex;
  std::condition_variable wake, ended;
  std::vector<std::weak_ptr<Hooks>> groups;
  bool is_running = false, is_stopping = false;
  bool is_called = false;  // to look at once
  pid_t process = 0;       // a forked one has no such thread

  // With the lock held.
  std::vector<std::shared_ptr<Hooks>> with_hooks() {
    std::vector<std::shared_ptr<Hooks>> out;
    std::erase_if(groups, [&out](const auto& group) {
      auto hooks = group.lock();
      if (!hooks || !hooks->any()) return true;
      out.push_back(std::move(hooks));
      return false;
    });
    return out;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait_for(lock, watch_interval, [this] { return is_stopping || is_called; });
      if (is_stopping) break;
      is_called = false;
      auto found = with_hooks();
      if (found.empty()) break;
      lock.unlock();
      for (const auto& hooks : found) hooks->look();
      found.clear();
      lock.lock();
    }
    is_running = false;
    ended.notify_all();
  }

  // Has the thread look at once; false if there is none.
  bool call() {
    const std::lock_guard lock(mutex);
    if (process != getpid() || !is_running) return false;
    is_called = true;
    wake.notify_all();
    return true;
  }

  void add(const std::shared_ptr<Hooks>& hooks) {
    const std::lock_guard lock(mutex);
    if (process != getpid()) {
      process = getpid();
      is_running = false;
      groups.clear();
    }
    const auto is_it = [&hooks](const auto& group) { return group.lock() == hooks; };
    if (std::ranges::none_of(groups, is_it)) groups.push_back(hooks);
    if (is_running || is_stopping) return;
    try {
      std::thread([this] { run(); }).detach();
      is_running = true;
    } catch (const std::system_error& error) {
      TORCH_WARN("there is no thread to watch groups of unisono for failures: ", error.what());
    }
  }
};

Watch& the_watch() {
  static auto* const watch = new Watch;
  return *watch;
}

template <class Table, class... Arguments>
void run_all(const Table& hooks, const Arguments&... arguments) {
  for (const auto& [id, hook] : hooks) try {
      hook(arguments...);
    } catch (const std::exception& error) {
      TORCH_WARN("a hook of a group of unisono failed: ", error.what());
    }
}

}  // namespace

template <class Change>
void Hooks::change(Change change) {
  const std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Table>(*table_);
  change(*changed);
  any_ = !changed->abort.empty() || !changed->completion.empty();
  table_ = std::move(changed);
}

std::shared_ptr<const Hooks::Table> Hooks::table() {
  const std::lock_guard lock(mutex_);
  return table_;
}

void Hooks::add_abort_hook(std::int64_t id, AbortHook hook) {
  change([&](Table& table) { table.abort[id] = std::move(hook); });
  the_watch().add(shared_from_this());
}

void Hooks::add_completion_hook(std::int64_t id, CompletionHook hook) {
  change([&](Table& table) { table.completion[id] = std::move(hook); });
  the_watch().add(shared_from_this());
}

void Hooks::remove_abort_hook(std::int64_t id) {
  change([id](Table& table) { table.abort.erase(id); });
}

void Hooks::remove_completion_hook(std::int64_t id) {
  change([id](Table& table) { table.completion.erase(id); });
}

void Hooks::watch(std::shared_ptr<const Fate> fate) {
  const std::lock_guard lock(mutex_);
  fate_ = std::move(fate);
  is_told_ = false;
}

void Hooks::complete(const Keys& keys) {
  const auto hooks = table();
  for (const std::uint64_t key : keys) run_all(hooks->completion, key);
}

void Hooks::complete_at(std::shared_ptr<const c10::Event> end, Keys keys) {
  Keys reached;
  {
    const std::lock_guard lock(mutex_);
    // After a failure the events of calls that were given up are reached, too.
    while (!on_streams_.empty() && fate_ && fate_->failure().ok() &&
           on_streams_.front().first->query()) {
      const Keys& front = on_streams_.front().second;
      reached.insert(reached.end(), front.begin(), front.end());
      on_streams_.pop_front();
    }
    on_streams_.emplace_back(std::move(end), std::move(keys));
  }
  complete(reached);
}

void Hooks::fail(const Error& error) {
  if (!any() || error.kind == ErrorKind::misuse || error.aborted) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_told_, true)) return;
    is_due_ = true;
  }
  if (!the_watch().call()) tell();
}

void Hooks::tell() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_due_, false)) return;
  }
  const WithoutGil release;  // a dump with stack traces needs it
  completer_->settle_done();
  prepare_stack_traces();
  run_all(table()->abort);
}

void Hooks::look() {
  completer_->settle_done();
  std::shared_ptr<const Fate> fate;
  {
    const std::lock_guard lock(mutex_);
    if (!is_told_) fate = fate_;
  }
  const Status status = fate ? fate->failure() : Status();
  if (!status.ok()) fail(status.error());
  tell();
}

void Hooks::stop_watching(Deadline deadline) {
  Watch& watch = the_watch();
  std::vector<std::shared_ptr<Hooks>> left;
  {
    std::unique_lock lock(watch.mutex);
    if (watch.process != getpid()) return;
    watch.is_stopping = true;
    watch.wake.notify_all();
    watch.ended.wait_until(lock, deadline, [&watch] { return !watch.is_running; });
    left = watch.with_hooks();
  }
  for (const auto& hooks : left) hooks->look();
  await_stack_traces(deadline);
}

}  // namespace unisono::pytorch
