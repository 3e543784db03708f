// One started operation as PyTorch sees it.
//
// In CPU memory: whoever waits for it drives the communicator. A future, once asked for, is
// completed by the backend's Completer. Outputs that the core could not write where they belong
// (lists, strided tensors) are staged and copied once, by whoever first sees that the operation is
// complete.
//
// On a CUDA device: the operation, and the copying of what was staged, are on a stream already.
// Waiting has the current stream wait, not the host. What the operation uses is kept until somebody
// waits; if the Work goes before, PyTorch's allocator is told of the stream.
#pragma once

#include <unisono/communicator.h>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensors.h"

namespace unisono::pytorch {

class Completer;

// What an operation holds until it is complete.
struct Holding {
  std::vector<at::Tensor> inputs;                         // kept alive only
  std::vector<at::Tensor> outputs;                        // what result() and the future give
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // target, staged
  struct Combination {
    at::Tensor target, parts;
    Bitwise bitwise;
  };
  std::vector<Combination> combinations;  // before the copies

  // Moves the outputs where they belong. What was staged is kept: on a stream it is still in use.
  void finish();
  void add(Holding other);
};

// How a group fared, for operations that are looked at after its end. Any thread.
class Fate {
 public:
  explicit Fate(Communicator communicator) : communicator_(std::move(communicator)) {}
  Status failure() const;
  // Before the communicator is destroyed: remembers what it says.
  void keep();
  void fail(Error error);

 private:
  const Communicator communicator_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

// Where an operation on a device is: complete when `end` is reached.
struct OnStream {
  c10::Stream stream;
  c10::Event end;
  std::uint64_t sequence;
  std::shared_ptr<const Fate> fate;
  bool host_waits;  // in every wait()
};

class Work : public c10d::Work {
 public:
  // The texts of its errors begin with `operation`, a literal, and `group`. `completer` is the
  // backend's. `calls` are of operations in CPU memory.
  Work(int rank, c10d::OpType type, const char* operation, std::shared_ptr<const std::string> group,
       std::vector<unisono::Work> calls, Holding holding, std::shared_ptr<Completer> completer,
       std::optional<OnStream> on_stream = std::nullopt);
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override;

  // Whether all calls are done, and the stream has come so far; drives nothing.
  bool calls_done() const;
  // Drives for at most so long; whether it is settled then.
  bool drive(std::chrono::nanoseconds patience);
  // Once all calls are done: takes their outcome, moves the outputs, completes the futures.
  void settle();
  std::string where() const { return operation_ + *group_; }

 private:
  bool wait_on_stream(std::chrono::milliseconds timeout);
  c10::intrusive_ptr<c10::ivalue::Future> make_future(bool of_outputs);
  void complete_future(c10::ivalue::Future& future, bool of_outputs) const;

  const char* const operation_;
  const std::shared_ptr<const std::string> group_;
  std::vector<unisono::Work> calls_;
  Holding holding_;
  const std::optional<OnStream> on_stream_;
  std::shared_ptr<Completer> completer_;
  std::vector<at::Tensor> outputs_;
  int source_ = -1;
  // Guarded by the base's mutex_. A future made after they were closed completes itself.
  c10::intrusive_ptr<c10::ivalue::Future> outputs_future_, outcome_future_;
  bool futures_closed_ = false;
  std::mutex settling_;
};

// Keeps what is under way alive, and completes the futures that were asked for, on a thread that
// it makes with the first of them.
class Completer {
 public:
  ~Completer();
  // Until it is complete, though its user forgets it.
  void hold(c10::intrusive_ptr<Work> work);
  // Has its future completed.
  void watch(c10::intrusive_ptr<Work> work);
  // Those that are not complete yet.
  std::vector<c10::intrusive_ptr<Work>> unfinished();
  // Ends the thread, when everything is complete or has failed.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<c10::intrusive_ptr<Work>> held_;
  std::vector<c10::intrusive_ptr<Work>> watched_;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace unisono::pytorch
