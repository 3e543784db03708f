// One started operation as PyTorch sees it.
//
// In CPU memory the waiting thread drives progress. A future, once asked for, is
// completed by the backend's Completer. Outputs that the core could not write where they belong
// (lists, strided tensors) are staged and copied once, by the first thread that sees the operation
// complete.
//
// On a CUDA device: the operation, and the copying of what was staged, are on a stream already.
// Waiting has the current stream wait, not the host. What the operation uses is kept until somebody
// waits; if the Work is destroyed earlier, PyTorch's allocator records the stream.
#pragma once

#include <unisono/communicator.h>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "completer.h"
#include "hooks.h"
#include "tensors.h"

namespace unisono::pytorch {

// What an operation holds until it is complete.
struct Holding {
  std::vector<at::Tensor> inputs;                         // kept alive only
  std::vector<at::Tensor> outputs;                        // what result() and the future give
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // target, staged
  struct Combination {
    at::Tensor target, parts;
    Bitwise bitwise;
  };
  std::vector<Combination> combinations;    // before the copies
  std::vector<std::function<void()>> last;  // after the copies
  std::vector<at::Tensor> given;            // as inputs; noted for profilers only

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
  std::shared_ptr<const c10::Event> end;
  std::shared_ptr<const Fate> fate;
  bool host_waits;  // in every wait()
};

// What hooks know an operation by.
class Keyed : public c10d::Work {
 public:
  using c10d::Work::Work;
  // Not `override`, because PyTorch before 2.15 does not know it.
  virtual std::uint64_t getCompletionKey() const { return key_; }

 private:
  const std::uint64_t key_ = next_key();
  static std::uint64_t next_key();
};

// One call of a batch, which hooks hear of by itself. The batch is what its user waits for.
class Part : public Keyed {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

class Work : public Keyed {
 public:
  // The texts of its errors begin with `operation`, a literal, and `group`. `completer` and `hooks`
  // are the backend's. An operation in CPU memory has not begun; profilers show it from here on.
  Work(int rank, c10d::OpType type, const char* operation, std::shared_ptr<const std::string> group,
       std::uint64_t sequence, Holding holding, std::shared_ptr<Completer> completer,
       std::shared_ptr<Hooks> hooks, std::optional<OnStream> on_stream = std::nullopt);
  // The calls of an operation in CPU memory were started. Its parts are complete when it is.
  void begin(std::vector<unisono::Work> calls, Hooks::Keys parts = {});
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
  uint64_t getSequencenumber() const override { return sequence_; }

  // Whether all calls are done, and the stream has come so far; drives nothing.
  bool calls_done() const;
  // Drives for at most so long; whether it is settled then.
  bool drive(std::chrono::nanoseconds patience);
  // Once all calls are done: takes their outcome and moves the outputs. Runs nothing of users.
  void settle();
  // Once it is settled: completes the futures that were asked for before. Runs users' callbacks.
  void complete_futures();
  std::string where() const { return operation_ + *group_; }

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  bool wait_on_stream(std::chrono::milliseconds timeout);
  // Settles it with settling_ held, and returns what may be freed without it.
  Holding settle_locked();
  Future make_future(bool of_outputs);
  void complete_future(c10::ivalue::Future& future, bool of_outputs) const;

  const char* const operation_;
  const std::shared_ptr<const std::string> group_;
  const std::uint64_t sequence_;
  std::vector<unisono::Work> calls_;
  Holding holding_;
  const std::optional<OnStream> on_stream_;
  std::shared_ptr<Completer> completer_;
  const std::shared_ptr<Hooks> hooks_;
  Hooks::Keys parts_;
  std::optional<Error> error_;  // of a call, once it is settled
  std::vector<at::Tensor> outputs_;
  int source_ = -1;
  // Guarded by the base's mutex_. A future made after they were closed is complete from the start.
  Future outputs_future_, outcome_future_;
  std::vector<std::pair<Future, bool>> pending_futures_;  // and whether it is of outputs
  bool futures_closed_ = false;
  std::mutex settling_;
};

}  // namespace unisono::pytorch
