// Calls on CUDA streams where devices do not reach each other's memory: data go to host memory, the
// host's engine runs the plan there, and what comes out goes back, in the stream's order. A call is
// through when the way back is on the stream, so it waits for what the stream does before it.
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/run/host_path.h"
#include "comm/run/point_to_point.h"
#include "comm/run/task.h"
#include "engine/engine.h"
#include "engine/gpu/execution.h"
#include "plan/phases.h"

namespace unisono::comm {

// The staging of one communicator, which must outlive its executions.
class Staging {
 public:
  explicit Staging(engine::gpu::Resources& device) : device_(device) {}
  ~Staging();

  // A plan of the host's engine, for calls in device memory that are in place or not: in host
  // memory its buffers lie as the plan's header says.
  std::unique_ptr<engine::Execution> stage(const plan::Header& header, int rank, bool in_place,
                                           std::unique_ptr<engine::Execution> on_host);
  // A plan in phases, of which the host's engine runs the one between nodes.
  Result<std::unique_ptr<engine::Execution>> mix(const plan::Header& header,
                                                 const plan::Phases& phases, HostPath& host);
  // As PointToPoint::prepare, for messages in device memory. Any thread.
  Status prepare(std::span<const Message> messages, PointToPoint& on_host, Task& task);
  // Host memory that it holds. Any thread.
  std::size_t memory_bytes() const;

 private:
  class Staged;
  class Collective;
  class Mixed;
  class Group;
  // Host memory of one call at a time; `event` is recorded after each copy of its.
  struct Area {
    std::size_t bytes = 0;
    sys::cuda::MappedHostMemory memory;
    sys::cuda::EventHandle* event = nullptr;
    bool is_taken = false;
  };

  Result<Area*> take(std::size_t bytes);
  void give_back(Area& area);
  bool is_copied(const Area& area) const;
  void free(Area& area) const;

  engine::gpu::Resources& device_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Area>> areas_;
};

}  // namespace unisono::comm
