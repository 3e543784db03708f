// The process's exit, before the libraries that it uses end.
#pragma once

#include <functional>

namespace unisono::sys {

// Has `action` called once when the process exits by exit() or the end of main(), as long as this
// object lives. What is registered later is called first, and before what a library that was
// initialised earlier does at the exit. In a process that was forked later nothing is called.
class AtExit {
 public:
  explicit AtExit(std::function<void()> action);
  // Waits for the action, where another thread is in it.
  ~AtExit();
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  std::function<void()> action_;
};

}  // namespace unisono::sys
