// The inside of a Communicator.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "comm/board.h"
#include "comm/connections.h"
#include "comm/job.h"
#include "comm/point_to_point.h"
#include "comm/scheduler.h"
#include "comm/selection.h"
#include "comm/task.h"

namespace unisono {

// Does not hold its communicator: the progress thread may drop the last reference to a call, and
// must not be the one that destroys the communicator, which joins that thread.
struct Work::State {
  comm::Task task;
};

struct Communicator::Core {
  // `group` is this communicator's control plane; its members are in the order of ranks.
  static Result<std::shared_ptr<Core>> make(std::shared_ptr<comm::Job> job,
                                            std::unique_ptr<comm::ControlGroup> group);
  ~Core();

  std::shared_ptr<comm::Job> job;
  std::unique_ptr<comm::ControlGroup> group;
  std::uint64_t id = 0;
  std::uint32_t epoch = 0;
  int rank = 0;
  int size = 1;
  std::vector<int> world_ranks;
  std::int64_t timeout_ns = 0;
  bool checks_calls = false;
  std::uint64_t splits = 0;
  std::atomic<std::uint64_t> next_sequence{0};
  std::atomic<bool> destroyed{false};

  std::unique_ptr<comm::Connections> connections;
  std::unique_ptr<comm::Selection> selection;
  std::unique_ptr<comm::Board> board;
  std::unique_ptr<comm::PointToPoint> point_to_point;
  std::unique_ptr<comm::Scheduler> scheduler;

  // The short way of run(): false if the call must take the long one, which also tells what is
  // wrong with it.
  bool run_at_once(const Call& call, Status& outcome);
  bool run_at_once(const Message& message, Status& outcome);
  // Fills the task for a call: checks it, selects, finds or makes the execution.
  Status prepare(const Call& call, comm::Task& task);
  Status prepare(std::span<const Message> messages, std::int64_t timeout, comm::Task& task);
  // Usable at all: neither destroyed nor failed.
  Status usable() const;
  trace::Owner owner() const;
  Result<Communicator> split(int color, int key);
  Result<std::string> explain(Collective collective, std::uint64_t bytes);
  std::size_t plans_bytes();
  // Waits for all calls, then closes the connections.
  Status drain();

 private:
  struct PlanKey {
    const algorithm::Entry* entry;
    Protocol protocol;
    bool in_place;
    int channels;
    int root;
    bool operator==(const PlanKey&) const = default;
  };
  struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const;
  };
  // What the last call of a collective came to, for one that is like it but for its addresses.
  struct Ready {
    engine::Execution* execution = nullptr;
    // The call's: the arguments of a barrier differ.
    std::int64_t count = 0;
    int root = 0;
    CallOptions options;
    bool in_place = false;
    std::uint64_t input_bytes = 0;
    std::uint64_t output_bytes = 0;
    engine::Arguments arguments;
    trace::Entry entry;
    std::int64_t timeout_ns = 0;
  };
  static bool is_like(const Ready& ready, const Call& call);
  // The scheduler's turn, unless the communicator was destroyed: whoever destroys it holds the seat
  // while connections close, so that what is seen with the turn stays so.
  bool take_turn();
  Status make_ready(const Call& call, Ready& ready);

  Result<engine::Execution*> execution(const PlanKey& key, Collective collective);
  Status select(const Call& call, comm::Task& task);
  Status compare_calls(const Call& call);
  void stamp(comm::Task& task, std::int64_t timeout);

  // Guards the selection and the executions of all plans used so far.
  std::mutex plans_mutex_;
  std::unordered_map<PlanKey, std::unique_ptr<engine::Execution>, PlanKeyHash> executions_;
  // With the scheduler's turn.
  std::array<Ready, collective_count> ready_;
};

}  // namespace unisono
