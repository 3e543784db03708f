// Keeps the process's signals from libfabric.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>

namespace unisono::transport::ofi {

// While one lives, libfabric may be loaded or set up; afterwards the signals are handled as before.
// Otherwise libraries that it loads, and its provider of shared memory, take SIGINT, SIGTERM and
// the signals of crashes away from the program.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < NSIG; ++number) sigaction(number, nullptr, &action(number));
  }
  ~KeptSignals() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now;
      if (sigaction(number, nullptr, &now) == 0 && now.sa_sigaction != action(number).sa_sigaction)
        sigaction(number, &action(number), nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  struct sigaction& action(int number) { return actions_[static_cast<std::size_t>(number)]; }
  std::array<struct sigaction, NSIG> actions_{};
};

}  // namespace unisono::transport::ofi
