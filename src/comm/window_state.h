// The inside of a Window.
#pragma once

#include <unisono/window.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/windows/window_service.h"
#include "sys/process.h"

namespace unisono {

struct Window::State {
  struct Part {
    std::uint64_t address = 0;  // where the other processes of its host write to it
    std::uint64_t bytes = 0;
    std::uint8_t past_word = 0;  // bytes of its first one past a multiple of 8
    sys::ProcessIdentity process;
    std::uint64_t here = 0;  // where this process loads and stores it; 0: it does not
    bool is_on_this_host = false;
  };
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (const auto served = service.lock()) served->close(number);
  }

  std::uint64_t communicator = 0;
  std::uint32_t number = 0;  // among its communicator's, the same on all ranks
  int rank = 0;
  bool is_on_device = false;
  void* data = nullptr;                        // this rank's
  std::vector<Part> parts;                     // by rank
  std::weak_ptr<comm::WindowService> service;  // where other hosts have ranks

  const Part& part(int peer) const { return parts[static_cast<std::size_t>(peer)]; }
  // Misuse if [offset, offset + bytes) is not in that rank's part.
  Status check(int peer, std::size_t offset, std::size_t bytes) const;
  // This process does not reach that rank's part.
  Error unreached(int peer) const;
};

}  // namespace unisono
