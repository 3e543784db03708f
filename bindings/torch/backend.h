// PyTorch's process group over a communicator.
//
// Every operation has one shape: check the tensors, make an Operation of them, start it. Memory is
// memory to the core; where it is decides only how an operation is started and waited for.
//
// On a CUDA device: an asynchronous operation is enqueued on a stream of the group's own, which
// first waits for the current stream; any other is enqueued on the current stream. The host waits
// until it is there.
#pragma once

#include <unisono/communicator.h>
#include <unisono/invitation.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "batch.h"
#include "device.h"
#include "hooks.h"
#include "operation.h"
#include "tensors.h"
#include "work.h"

namespace unisono::pytorch {

class Backend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using Started = c10::intrusive_ptr<c10d::Work>;

  // `joining` is how the communicator was made, and how reconfigure() makes another one; an empty
  // communicator waits for that. `name` and `global_ranks` are for the texts of errors.
  // `host_waits`: Work::wait() of operations on devices has the host wait, too.
  Backend(Communicator communicator, InitOptions joining, std::string name,
          std::vector<std::uint64_t> global_ranks, std::chrono::milliseconds timeout,
          bool host_waits);
  ~Backend() override;
  static c10::intrusive_ptr<Backend> make(Communicator communicator, InitOptions joining,
                                          std::string name, std::vector<std::uint64_t> global_ranks,
                                          std::chrono::milliseconds timeout, bool host_waits);
  // Refuses other libraries' by name.
  static Backend& of(const c10::intrusive_ptr<c10d::Backend>& backend);
  // Shuts down all that live, for the end of the process.
  static void close_all();

  const std::string getBackendName() const override { return "unisono"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  // For the next collective. Virtual in PyTorch 2.14 and newer, and unknown before.
  void addEphemeralTimeout(const std::chrono::milliseconds& more) { added_timeout_ = more; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  // PyTorch may ask for one part once for each type of device, with one store; and since 2.15 some
  // ranks so and others once.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  // Collective: opens the device, and connects it with those of the other ranks.
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  void abort() override;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  // An invitation of this process. A process that reads it can join until reconfigure() returns or
  // the group ends; afterwards there is another one.
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  // Aborts what is under way, then joins the ranks of the handles, which all call it. Returns when
  // they have come. No other call may be made at the same time, except abort().
  Started reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#ifdef UNISONO_HAS_HOOKS
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override {
    hooks_->add_abort_hook(id, std::move(hook));
  }
  void unregisterAbortHook(std::int64_t id) override { hooks_->remove_abort_hook(id); }
  // Without durations.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->add_completion_hook(
        id, [hook = std::move(hook)](std::uint64_t key) { hook({key, std::nullopt}); });
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->remove_completion_hook(id); }
#endif
  void shutdown() override;

  Started broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Started allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // PyTorch's name for that of sparse tensors on a CUDA device, which are refused.
  Started allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return allreduce(tensors, options);
  }
  Started allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  Started reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Started allgather(Lists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  Started _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  Started allgather_coalesced(Lists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  Started allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  Started reduce_scatter(Tensors& outputs, Lists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  Started _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  Started reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  Started gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Started scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Started alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  Started alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  Started barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  Started send(Tensors& tensors, int peer, int tag) override;
  Started recv(Tensors& tensors, int peer, int tag) override;
  Started recvAnysource(Tensors& tensors, int tag) override;
  void startCoalescing() override;
  Started endCoalescing() override;
  // Ends this thread's batch, if it has one, without its messages.
  void drop_batch();

  // When the last user lets go: the registry of live groups forgets it.
  void release_resources() override;

  // Refuses the operation if the group has no members yet.
  Communicator& connected(const char* operation);
  const InitOptions& joining() const { return joining_; }
  // In place; on a device on the current stream, with nothing to wait for.
  void all_reduce_(const at::Tensor& tensor, const c10d::ReduceOp& operation);
  // One all-gather or reduce-scatter by a named algorithm.
  Started all_gather_by(const std::string& algorithm, at::Tensor& output, at::Tensor& input,
                        bool is_async);
  Started reduce_scatter_by(const std::string& algorithm, at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceOp& operation, bool is_async);

 private:
  Site site(const char* operation) const { return {operation, rank_}; }
  // Tells a profiler, if there is one, whose the operation is.
  void profile(const char* operation, const Holding& holding, bool is_async) const;
  // " on rank 1 of group 'dp'", and which ranks of the job are meant if they are others.
  std::shared_ptr<const std::string> make_place() const;
  // Begins the text of an operation's error.
  std::string where(const char* operation) const;
  // Raises an error of the operation, after the hooks of a failure.
  void check(const Status& status, const char* operation) const;
  template <class T>
  T take(Result<T> result, const char* operation) const {
    if (!result.ok()) check(result.error(), operation);
    return std::move(*result);
  }
  // A call's deadline, which takes what was added for it.
  std::chrono::nanoseconds limit(std::chrono::milliseconds of_call);
  // Runs it, and returns nothing or, for hooks, what is complete; or starts it. PyTorch waits for
  // what is returned.
  Started start(Operation operation, std::chrono::milliseconds timeout, bool is_async);
  template <class AnyOptions>
  Started start(Operation operation, const AnyOptions& options) {
    return start(std::move(operation), options.timeout, options.asyncOp);
  }
  Started start(std::vector<Operation> operations, std::chrono::milliseconds timeout,
                bool is_async);
  // Announces an operation in CPU memory that is about to begin, and then that it has begun.
  c10::intrusive_ptr<Work> follow(c10d::OpType type, const char* name, Holding holding,
                                  bool is_async = true);
  Started begun(const c10::intrusive_ptr<Work>& work, std::vector<unisono::Work> calls,
                Hooks::Keys parts = {});
  unisono::Work submit(const char* name, std::span<const Message> messages,
                       std::chrono::nanoseconds patience);
  Started start_message(c10d::OpType type, const char* name, const at::Tensor& tensor,
                        Message message);
  // Work for hooks, or nothing: what a call in a batch returns.
  Started join(Batch& batch, std::vector<unisono::Work> calls, Holding holding);
  Started put_off(Batch& batch, const Message& message, Holding holding);
  Started part_of(Hooks::Keys& parts) const;

  // The same on a device. It is the rank's only one, of that name in errors.
  Device& device_of(c10::Device device, const Site& site);
  const Device* known_device() const;
  Started start_on_device(std::span<Operation> operations, bool is_async);
  Started start_on_device(c10d::OpType type, const char* name, c10::Device device,
                          std::span<const Message> messages, Holding holding,
                          Hooks::Keys parts = {});
  Started follow(c10d::OpType type, const char* name, const c10::Stream& stream, Holding holding,
                 bool is_async, Hooks::Keys parts = {});
  // Whether what is on the stream is announced to hooks: not while it is captured.
  bool announces(const c10::Stream& stream) const;
  // All that is batched is on one device.
  static void check_batch(Batch& batch, c10::Device device, const Site& site);
  // Waits for all that is pending, at most so long, then aborts the group.
  void end_what_is_pending(Deadline deadline);
  void abort_pending(const std::string& what);

  std::vector<std::int64_t> gather_counts(const at::Tensor& tensor,
                                          std::chrono::nanoseconds patience);
  Started all_reduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options);
  Operation prepare_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                               const char* name) const;
  // Without its input, of which this rank's part has the shape of the output.
  Operation prepare_reduce_scatter(c10d::OpType type, const char* name, const at::Tensor& output,
                                   const c10d::ReduceOp& operation) const;
  Operation prepare_reduce_scatter(const char* name, const at::Tensor& output,
                                   const at::Tensor& input, const c10d::ReduceOp& operation) const;
  Operation prepare_all_gather(const char* name, const at::Tensor& output,
                               const at::Tensor& input) const;
  Operation prepare_all_gather(const char* name, const Tensors& outputs,
                               const at::Tensor& input) const;
  // Starts what prepare(output, input) makes of each pair.
  template <class Prepare, class AnyOptions>
  Started start_pairs(const char* name, Tensors& outputs, Tensors& inputs,
                      const AnyOptions& options, Prepare prepare);

  // One tensor for each rank, each of the shape of `like`.
  void check_list(const Tensors& list, const at::Tensor& like, const char* what,
                  const Site& site) const;
  // The only list of `lists`, so checked.
  const Tensors& list_in(const Lists& lists, const at::Tensor& like, const char* what,
                         const Site& site) const;
  // The list that the root gives; null elsewhere, where there must be none.
  const Tensors* list_of_root(const Lists& lists, const at::Tensor& like, const char* what,
                              int root, const Site& site) const;
  // A tensor of one part for each rank.
  void check_parts(const at::Tensor& whole, const at::Tensor& part, const char* whole_is,
                   const char* part_is, const Site& site) const;
  void set_root(Operation& operation, std::int64_t root) const;
  // monitoredBarrier at rank 0, and elsewhere.
  void await_all(std::chrono::nanoseconds patience);
  void report_to_first(std::chrono::nanoseconds patience);

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // Takes another communicator, or none, and with it a new life.
  void replace(Communicator communicator);

  // From then on the last handle admits no process.
  void end_handle();

  mutable std::string handle_;     // the last one; empty after it was used
  mutable Invitation invitation_;  // that it is
  std::set<std::int64_t> used_;    // identifiers of configurations
#endif
  Communicator communicator_;
  const InitOptions joining_;
  const std::string name_;
  std::vector<std::uint64_t> global_ranks_;
  std::shared_ptr<const std::string> place_;  // of all errors
  // Any thread. Each is a value on its own, and orders nothing.
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::chrono::milliseconds> added_timeout_{std::chrono::milliseconds(0)};
  const bool host_waits_;
  std::shared_ptr<Fate> fate_;
  mutable std::mutex device_mutex_;  // guards its making; from then on it stays
  std::optional<Device> device_;
  // Of the last collective, so that it is the same on all ranks. Any thread.
  std::atomic<std::uint64_t> sequence_ = 0;
  std::shared_ptr<Completer> completer_;
  std::shared_ptr<Hooks> hooks_;
  bool is_shut_ = false;
  const pid_t process_ = getpid();

  Batches batches_;
  // The last split's, and this rank's part, which may be gone.
  c10::intrusive_ptr<c10d::Store> split_store_;
  const Backend* split_part_ = nullptr;
};

}  // namespace unisono::pytorch
