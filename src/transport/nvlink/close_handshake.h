// Ends of connections that are closed here while the peer's kernels may still store to them: a
// credit for the last message, say. Their memory is kept until the peer has closed its end too, or
// is gone.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/nvlink/pool.h"
#include "transport/transport.h"

namespace unisono::transport::nvlink {

// A signal of the control connection: 1, once the introduction is there; 2, once its sender's
// kernels and copies are done with the receiver's memory.
inline constexpr std::uint64_t introduced_value = 1;
inline constexpr std::uint64_t closed_value = 2;

// Any thread.
class CloseHandshakes {
 public:
  CloseHandshakes() = default;
  ~CloseHandshakes();
  CloseHandshakes(const CloseHandshakes&) = delete;
  CloseHandshakes& operator=(const CloseHandshakes&) = delete;

  // Tells the peer that this end closes, and keeps the memory for as long as it must be kept. The
  // control connection is ready.
  void add(std::unique_ptr<Connection> control, Pool::Stretch own, bool peer_is_in_this_process);
  // Lets go of what no peer uses any more. Cheap when there is nothing.
  void sweep();
  // Whether a peer in this process has not closed its end yet, after a sweep.
  bool wait_for_this_process();

 private:
  struct End {
    std::unique_ptr<Connection> control;
    Pool::Stretch own;
    bool peer_is_in_this_process = false;
    bool told = false;
  };
  static bool is_over(End& end);

  std::mutex mutex_;
  std::vector<End> ends_;
};

}  // namespace unisono::transport::nvlink
