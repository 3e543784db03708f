// Values of which a thread has at most one, and sees no other thread's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace unisono::pytorch {

// Any thread.
template <class Value>
class ByThread {
 public:
  // The calling thread's; null if it has none. Valid until this thread takes it, or clear().
  Value* own() {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(own_number());
    return found == values_.end() ? nullptr : &found->second;
  }
  // Makes one for the calling thread; false if it has one.
  bool open() {
    const std::lock_guard lock(mutex_);
    const bool is_new = values_.try_emplace(own_number()).second;
    count_.store(values_.size(), std::memory_order_relaxed);
    return is_new;
  }
  // Takes the calling thread's.
  std::optional<Value> take() {
    const std::lock_guard lock(mutex_);
    auto node = values_.extract(own_number());
    count_.store(values_.size(), std::memory_order_relaxed);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }
  // Forgets those of all threads, which must not use them meanwhile.
  void clear() {
    std::unordered_map<std::uint64_t, Value> dropped;  // freed without the lock
    const std::lock_guard lock(mutex_);
    dropped.swap(values_);
    count_.store(0, std::memory_order_relaxed);
  }

 private:
  // Not std::thread::id, which a later thread may get again.
  static std::uint64_t own_number() {
    static std::atomic<std::uint64_t> last{0};
    // Relaxed: the numbers need no order, only to differ.
    thread_local const std::uint64_t own = last.fetch_add(1, std::memory_order_relaxed) + 1;
    return own;
  }

  // Spares threads without a value the lock. Relaxed: a thread sees what it has written itself, and
  // needs to know of no other's value.
  std::atomic<std::size_t> count_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Value> values_;  // by thread
};

}  // namespace unisono::pytorch
