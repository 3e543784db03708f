#include "batch.h"

#include <utility>

namespace unisono::pytorch {
namespace {

// Not std::thread::id, which a later thread may get again.
std::uint64_t own_thread() {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: the numbers need no order, only to differ.
  thread_local const std::uint64_t own = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return own;
}

}  // namespace

Batch* Batches::own() {
  if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(own_thread());
  return found == batches_.end() ? nullptr : &found->second;
}

bool Batches::open() {
  const std::lock_guard lock(mutex_);
  const bool is_new = batches_.try_emplace(own_thread()).second;
  count_.store(batches_.size(), std::memory_order_relaxed);
  return is_new;
}

std::optional<Batch> Batches::take() {
  const std::lock_guard lock(mutex_);
  auto node = batches_.extract(own_thread());
  count_.store(batches_.size(), std::memory_order_relaxed);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void Batches::clear() {
  std::unordered_map<std::uint64_t, Batch> dropped;  // freed without the lock
  const std::lock_guard lock(mutex_);
  dropped.swap(batches_);
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace unisono::pytorch
