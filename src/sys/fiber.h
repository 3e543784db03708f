// A stack of its own for blocking code in a simulated world. All fibers of a simulation run on one
// thread, which goes from its loop into one of them and back.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

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
  static void begin(unsigned high, unsigned low);
  void enter();

  std::function<void()> run_;
  std::byte* stack_;
  ucontext_t own_{};
  ucontext_t resumer_{};
  bool has_ended_ = false;
  // For the sanitizers, which keep what they know of a stack by the thread.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* resumer_stack_ = nullptr;
  [[maybe_unused]] std::size_t resumer_stack_bytes_ = 0;
  [[maybe_unused]] void* own_thread_ = nullptr;
  [[maybe_unused]] void* resumer_thread_ = nullptr;
};

}  // namespace unisono::sys
