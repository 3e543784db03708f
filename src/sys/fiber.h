// A stack of its own for blocking code in a simulated world. All fibers of a simulation run on one
// thread, which goes from its loop into one of them and back.
#pragma once

#include <cstddef>
#include <functional>

// ucontext keeps the signal mask, too, by two system calls a switch: two thirds of the time of a
// simulated job. The sanitizers follow ucontext alone.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define UNISONO_SWITCHES_STACKS 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef UNISONO_SWITCHES_STACKS
#endif
#endif
#endif
#ifndef UNISONO_SWITCHES_STACKS
#include <ucontext.h>
#endif

namespace unisono::sys {

class Fiber {
 public:
  explicit Fiber(std::function<void()> run);
  // One that has not ended is given up where it stands: what lies on its stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on with it until it suspends or ends. Outside of every fiber.
  void resume();
  // Back to who resumed it. Inside of it.
  void suspend();
  bool has_ended() const { return has_ended_; }

 private:
  void run_to_end();
#ifdef UNISONO_SWITCHES_STACKS
  static void begin();
  // Where the one that does not run left its registers, on its stack.
  void* own_ = nullptr;
  void* resumer_ = nullptr;
#else
  static void begin(unsigned high, unsigned low);
  void enter();
  ucontext_t own_{};
  ucontext_t resumer_{};
#endif

  std::function<void()> run_;
  std::byte* stack_;
  bool has_ended_ = false;
  // For the sanitizers, which keep what they know of a stack by the thread.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* resumer_stack_ = nullptr;
  [[maybe_unused]] std::size_t resumer_stack_bytes_ = 0;
  [[maybe_unused]] void* own_thread_ = nullptr;
  [[maybe_unused]] void* resumer_thread_ = nullptr;
};

}  // namespace unisono::sys
