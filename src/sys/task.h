// Coroutines of the control plane: Task<T>, the work that one can await, and TaskScope, the tasks
// that run concurrently with one's own.
//
// A task is lazy and has one owner. Awaiting it runs it at once, on the awaiter's stack, up to its
// first suspension; when it later ends, the awaiter is resumed by the loop that resumed the task
// (resume_chain), not from inside it. So the stack never grows with the number of awaits, without
// leaning on the compiler's tail calls (which g++ omits at -O0 and under sanitizers). Destroying a
// task that is suspended destroys everything it awaits; that is how work is cancelled.
//
// Tasks of one scheduler run on one thread at a time. An exception inside ends the process.
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace unisono::sys {

namespace detail {

// The awaiter of the task that has just ended; resume_chain takes it.
inline thread_local std::coroutine_handle<> next_in_chain;

struct FinalAwait {
  bool await_ready() noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> ended) noexcept {
    next_in_chain = ended.promise().continuation;
  }
  void await_resume() noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::suspend_always initial_suspend() noexcept { return {}; }
  FinalAwait final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  std::coroutine_handle<Promise> get_return_object() {
    return std::coroutine_handle<Promise>::from_promise(*this);
  }
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
};

template <>
struct Promise<void> : PromiseBase {
  std::coroutine_handle<Promise> get_return_object() {
    return std::coroutine_handle<Promise>::from_promise(*this);
  }
  void return_void() noexcept {}
};

}  // namespace detail

// Resumes a suspended coroutine, then everything that thereby became able to go on.
inline void resume_chain(std::coroutine_handle<> handle) {
  while (handle) {
    detail::next_in_chain = nullptr;
    handle.resume();
    handle = std::exchange(detail::next_in_chain, nullptr);
  }
}

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Runs up to the first suspension; for owners that do not await.
  void start() { resume_chain(handle_); }
  bool done() const { return handle_.done(); }

  bool await_ready() {
    // Nothing awaits this task yet, so its end leaves nothing in the chain.
    handle_.resume();
    return handle_.done();
  }
  void await_suspend(std::coroutine_handle<> awaiter) { handle_.promise().continuation = awaiter; }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) return std::move(*handle_.promise().value);
  }

 private:
  Handle handle_;
};

// Tasks that run concurrently with the one that spawned them, and end with the scope at the latest.
// Must not be destroyed by one of its own tasks.
class TaskScope {
 public:
  void spawn(Task<void> task) {
    std::erase_if(tasks_, [](const auto& old) { return old->done(); });
    tasks_.push_back(std::make_unique<Task<void>>(std::move(task)));
    Task<void>& started = *tasks_.back();
    started.start();
  }
  bool idle() const {
    for (const auto& task : tasks_)
      if (!task->done()) return false;
    return true;
  }
  void cancel_all() { tasks_.clear(); }

 private:
  std::vector<std::unique_ptr<Task<void>>> tasks_;
};

}  // namespace unisono::sys
