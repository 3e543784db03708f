// PyTorch's hooks at the completion of a group's operations and at its failure. By them its Flight
// Recorder learns which calls are complete, and when to write its dump (PyTorch 2.15 and newer).
//
// The thread that finds an operation complete runs the completion hooks: one that waits for it or
// starts the next one, or the watch thread. A process has one watch thread, which looks at all
// groups with hooks ten times a second. It also finds the failure of a group in which no call of
// this rank waits.
#pragma once

#include <unisono/result.h>

#include <c10/core/Event.h>
#include <torch/headeronly/version.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "completer.h"

// PyTorch before 2.15 has no hooks at completions.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define UNISONO_HAS_HOOKS
#endif

namespace unisono::pytorch {

class Fate;

// One group's hooks, by the numbers that PyTorch gives them. Any thread.
class Hooks : public std::enable_shared_from_this<Hooks> {
 public:
  using Keys = std::vector<std::uint64_t>;  // of operations; no two of a process are the same
  using AbortHook = std::function<void()>;
  using CompletionHook = std::function<void(std::uint64_t key)>;

  explicit Hooks(std::shared_ptr<Completer> completer) : completer_(std::move(completer)) {}
  void add_abort_hook(std::int64_t id, AbortHook hook);
  void add_completion_hook(std::int64_t id, CompletionHook hook);
  void remove_abort_hook(std::int64_t id);
  void remove_completion_hook(std::int64_t id);
  // Whether there are any. Relaxed: it spares work, and orders nothing.
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The watch thread looks for its failure; null: for none.
  void watch(std::shared_ptr<const Fate> fate);

  // Operations are complete without an error.
  void complete(const Keys& keys);
  // They will be when their stream reaches `end`. Later calls of this ask for that: the watch
  // thread may not, because asking breaks a capture of another thread.
  void complete_at(std::shared_ptr<const c10::Event> end, Keys keys);
  // Has the watch thread run the abort hooks if the error has ended the group and nobody asked for
  // that. They may take seconds, for which the caller's error does not wait; the end of the process
  // does.
  void fail(const Error& error);
  // What the watch thread does.
  void look();
  // Ends the watch thread, after a last look at all groups.
  static void stop_watching(Deadline deadline);

 private:
  struct Table {
    std::map<std::int64_t, AbortHook> abort;
    std::map<std::int64_t, CompletionHook> completion;
  };
  template <class Change>
  void change(Change change);
  // Runs the abort hooks if they are due.
  void tell();
  std::shared_ptr<const Table> table();

  const std::shared_ptr<Completer> completer_;
  std::atomic<bool> any_ = false;
  std::mutex mutex_;  // not held while a hook runs, because hooks take PyTorch's locks
  std::shared_ptr<const Table> table_ = std::make_shared<Table>();
  std::shared_ptr<const Fate> fate_;
  bool is_told_ = false;  // whether the abort hooks were run for this fate, or will be
  bool is_due_ = false;   // whether they are still to be run
  std::deque<std::pair<std::shared_ptr<const c10::Event>, Keys>> on_streams_;
};

}  // namespace unisono::pytorch
