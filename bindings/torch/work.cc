#include "work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>

#include "device.h"
#include "errors.h"
#include "profile.h"

namespace unisono::pytorch {

void Holding::finish() {
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const auto& [target, parts, bitwise] : combinations) {
    target.view({-1}).copy_(combine(parts, bitwise));
    inputs.push_back(parts);
  }
  for (const auto& [target, staged] : copies) {
    target.copy_(staged.view(target.sizes()));
    inputs.push_back(staged);
  }
  for (const auto& step : last) step();
  combinations.clear();
  copies.clear();
  last.clear();
}

void Holding::add(Holding other) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(inputs, other.inputs);
  append(outputs, other.outputs);
  append(copies, other.copies);
  append(combinations, other.combinations);
  append(last, other.last);
  append(given, other.given);
}

Status Fate::failure() const {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
  }
  Status status = communicator_.failure();
  // That it was destroyed meanwhile: what it had on streams was over by then.
  if (!status.ok() && status.error().kind == ErrorKind::misuse && !status.error().aborted)
    return {};
  return status;
}

void Fate::keep() {
  if (const Status status = failure(); !status.ok()) fail(status.error());
}

void Fate::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

std::uint64_t Keyed::next_key() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;  // they need no order, only to differ
}

Work::Work(int rank, c10d::OpType type, const char* operation,
           std::shared_ptr<const std::string> group, std::uint64_t sequence, Holding holding,
           std::shared_ptr<Completer> completer, std::shared_ptr<Hooks> hooks,
           std::optional<OnStream> on_stream)
    : Keyed(rank, type, is_profiled() && !on_stream ? profile_title(operation).c_str() : nullptr,
            is_profiled() && !on_stream ? std::optional(profile_inputs(holding)) : std::nullopt),
      operation_(operation),
      group_(std::move(group)),
      sequence_(sequence),
      holding_(std::move(holding)),
      on_stream_(std::move(on_stream)),
      completer_(std::move(completer)),
      hooks_(std::move(hooks)),
      outputs_(holding_.outputs) {}

void Work::begin(std::vector<unisono::Work> calls, Hooks::Keys parts) {
  calls_ = std::move(calls);
  parts_ = std::move(parts);
}

Work::~Work() {
  if (!on_stream_) return;
  const c10::impl::VirtualGuardImpl guard(on_stream_->stream.device_type());
  try {
    for (const auto* tensors : {&holding_.inputs, &holding_.outputs})
      for (const at::Tensor& tensor : *tensors)
        guard.recordDataPtrOnStream(tensor.storage().data_ptr(), on_stream_->stream);
  } catch (const std::exception& error) {
    TORCH_WARN(where(), " cannot tell the allocator of its stream: ", error.what());
  }
}

bool Work::calls_done() const {
  if (on_stream_) return on_stream_->end->query();
  return std::all_of(calls_.begin(), calls_.end(),
                     [](const unisono::Work& call) { return call.done(); });
}

void Work::settle() {
  Holding freed;  // without the lock: freeing a tensor may need the GIL
  const std::lock_guard settling(settling_);
  freed = settle_locked();
}

Holding Work::settle_locked() {
  if (c10d::Work::isCompleted()) return {};
  std::exception_ptr exception;
  for (unisono::Work& call : calls_) {
    if (const Status status = call.status(); !status.ok() && !error_) error_ = status.error();
    if (source_ < 0) source_ = call.source();
  }
  if (on_stream_)
    if (const Status status = on_stream_->fate->failure(); !status.ok()) error_ = status.error();
  if (error_) {
    exception = exception_of(*error_, where());
  } else {
    try {
      holding_.finish();
    } catch (...) {
      exception = std::current_exception();
    }
  }
  finish(exception);
  if (!exception && !on_stream_ && hooks_->any()) {
    parts_.push_back(getCompletionKey());
    hooks_->complete(parts_);
  }
  const std::lock_guard lock(mutex_);
  futures_closed_ = true;
  return std::exchange(holding_, {});
}

bool Work::drive(std::chrono::nanoseconds patience) {
  if (on_stream_) wait_for_event(*on_stream_->end, deadline_after(patience));
  for (unisono::Work& call : calls_)
    if (!call.done()) {
      static_cast<void>(call.wait_for(patience));
      break;
    }
  if (!calls_done()) return false;
  settle();
  return true;
}

bool Work::isCompleted() {
  if (c10d::Work::isCompleted()) return true;
  for (unisono::Work& call : calls_)
    if (!call.test()) return false;
  if (!calls_done()) return false;
  // The caller may hold the GIL, and the thread that settles it now may wait for the GIL.
  Holding freed;
  const std::unique_lock settling(settling_, std::try_to_lock);
  if (settling) freed = settle_locked();
  return c10d::Work::isCompleted();
}

bool Work::isSuccess() const { return c10d::Work::exception() == nullptr; }

std::exception_ptr Work::exception() const { return c10d::Work::exception(); }

int Work::sourceRank() const {
  if (source_ < 0)
    refuse(where() + " has no source rank: it is not a completed receive from any source");
  return source_;
}

std::vector<at::Tensor> Work::result() {
  if (!on_stream_ && !isCompleted())
    refuse(where() + " is not complete; wait for it before its result()");
  return outputs_;
}

void Work::synchronize() { wait(kNoTimeout); }

bool Work::wait_on_stream(std::chrono::milliseconds timeout) {
  const bool is_limited = timeout != kNoTimeout;
  if ((is_limited || on_stream_->host_waits) &&
      !drive(is_limited ? timeout : std::chrono::nanoseconds::max()))
    raise({.kind = ErrorKind::peer,
           .timed_out = true,
           .message = "it is not complete yet on " + c10::str(on_stream_->stream.device())},
          where());
  if (const Status status = on_stream_->fate->failure(); !status.ok()) {
    hooks_->fail(status.error());
    raise(status.error(), where());
  }
  const c10::impl::VirtualGuardImpl guard(on_stream_->stream.device_type());
  on_stream_->end->block(guard.getStream(on_stream_->stream.device()));
  Holding freed;
  const std::lock_guard settling(settling_);
  freed = std::exchange(holding_, {});
  return true;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (on_stream_) return wait_on_stream(timeout);
  const auto begin = std::chrono::steady_clock::now();
  if (!c10d::Work::isCompleted()) {
    for (unisono::Work& call : calls_) {
      if (timeout == kNoTimeout) {
        static_cast<void>(call.wait());  // settle() takes the outcome
        continue;
      }
      const auto left = timeout - (std::chrono::steady_clock::now() - begin);
      const Status status = call.wait_for(std::max(left, decltype(left)::zero()));
      if (!call.done()) check(status, where());
    }
    settle();
  }
  if (const auto failure = c10d::Work::exception()) {
    if (error_) hooks_->fail(*error_);
    std::rethrow_exception(failure);
  }
  return true;
}

void Work::abort() { refuse(where() + " cannot be aborted alone; abort its group: group.abort()"); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() { return make_future(true); }
c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() { return make_future(false); }

Work::Future Work::make_future(bool of_outputs) {
  const bool is_on_stream = on_stream_ && of_outputs;
  Future future;
  {
    const std::lock_guard lock(mutex_);
    Future& known = of_outputs ? outputs_future_ : outcome_future_;
    if (known) return known;
    std::vector<c10::Device> devices;
    if (is_on_stream) devices.push_back(on_stream_->stream.device());
    future = c10::make_intrusive<c10::ivalue::Future>(
        of_outputs ? c10::TypePtr(c10::ListType::create(c10::TensorType::get()))
                   : c10::TypePtr(c10::IntType::get()),
        std::move(devices));
    if (!is_on_stream && !futures_closed_) {
      completer_->watch(c10::intrusive_ptr<Work>::reclaim_copy(this));
      pending_futures_.emplace_back(future, of_outputs);
      return known = future;
    }
    known = future;
  }
  // Its value on a stream is there when the stream has come so far, for which its user's wait.
  std::optional<c10::StreamGuard> guard;
  if (is_on_stream) guard.emplace(on_stream_->stream);
  complete_future(*future, of_outputs);
  return future;
}

void Work::complete_futures() {
  std::vector<std::pair<Future, bool>> futures;
  {
    const std::lock_guard lock(mutex_);
    futures.swap(pending_futures_);
  }
  for (const auto& [future, of_outputs] : futures) complete_future(*future, of_outputs);
}

void Work::complete_future(c10::ivalue::Future& future, bool of_outputs) const {
  const auto failure = c10d::Work::exception();
  if (!of_outputs)
    future.markCompleted(c10::IValue(static_cast<std::int64_t>(
        failure ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
  else if (failure)
    future.setError(failure);
  else
    future.markCompleted(c10::IValue(outputs_));
}

}  // namespace unisono::pytorch
