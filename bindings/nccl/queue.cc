#include "queue.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "device_memory.h"

namespace unisono::nccl {
namespace {

CallOptions options_on(void* stream, const Config& config) {
  if (host_memory_stands_in()) return {};
  CallOptions options = config.options;
  options.stream = stream;
  return options;
}

// All messages go to the first one's stream; the others wait for it, and it for them.
Status submit_messages(Queue& queue, Pending& pending) {
  if (queue.messages.empty()) return {};
  void* const main = queue.messages.front().stream;
  std::vector<void*> others;
  std::vector<Message> messages;
  for (const Sent& sent : queue.messages) {
    messages.push_back(sent.message);
    if (sent.stream != main && std::ranges::find(others, sent.stream) == others.end())
      others.push_back(sent.stream);
  }
  const int device = queue.comm->device;
  for (void* other : others)
    if (auto status = order_streams(device, other, main); !status.ok()) return status;
  auto work = queue.comm->communicator().submit(messages, options_on(main, queue.comm->config));
  if (!work.ok()) return work.take_error();
  pending.works.push_back(std::move(*work));
  pending.finish = [device, main, others = std::move(others)]() -> Status {
    for (void* other : others)
      if (auto status = order_streams(device, main, other); !status.ok()) return status;
    return {};
  };
  return {};
}

Status submit_all(Queue& queue, Pending& pending) {
  for (const Call& call : queue.calls) {
    auto work = queue.comm->communicator().submit(call);
    if (!work.ok()) return work.take_error();
    pending.works.push_back(std::move(*work));
  }
  for (std::vector<Step>* steps : {&queue.puts, &queue.waits})
    std::ranges::move(*steps, std::back_inserter(pending.steps));
  return submit_messages(queue, pending);
}

Status wait_for(Pending& pending) {
  Status first;
  for (Work& work : pending.works)
    if (auto status = work.wait(); !status.ok() && first.ok()) first = std::move(status);
  return first;
}

// Until all steps are over: a rank's wait may be for a put of another one here.
Status finish_all(std::vector<Pending>& pending) {
  constexpr auto pause = std::chrono::microseconds(50);
  for (bool all_over = false; !all_over;) {
    all_over = true;
    for (Pending& one : pending) {
      auto is_over = one.advance();
      if (!is_over.ok()) return is_over.take_error();
      all_over = all_over && *is_over;
    }
    if (!all_over) std::this_thread::sleep_for(pause);
  }
  return {};
}

// Collectives first, each by the shortest way.
Status run_calls(Queue& queue) {
  for (const Call& call : queue.calls)
    if (auto status = queue.comm->communicator().run(call); !status.ok()) return status;
  queue.calls.clear();
  return {};
}

// No communicator of this thread may wait before the others have begun.
ncclResult_t run_blocking(std::vector<Queue>& queues) {
  if (queues.size() == 1)
    if (const Status status = run_calls(queues.front()); !status.ok()) return fail(status.error());
  std::vector<Pending> pending(queues.size());
  Status first;
  for (std::size_t i = 0; i < queues.size(); ++i)
    if (auto status = submit_all(queues[i], pending[i]); !status.ok() && first.ok())
      first = std::move(status);
  for (Pending& one : pending)
    if (auto status = wait_for(one); !status.ok() && first.ok()) first = std::move(status);
  if (first.ok()) first = finish_all(pending);
  return first.ok() ? ncclSuccess : fail(first.error());
}

ncclResult_t run_non_blocking(std::vector<Queue>& queues) {
  ncclResult_t result = ncclSuccess;
  for (Queue& queue : queues) {
    Pending pending;
    const Status status = submit_all(queue, pending);
    queue.comm->add_pending(std::move(pending));
    if (!status.ok()) return fail(status.error());
    const ncclResult_t state = queue.comm->state();
    if (state != ncclSuccess && state != ncclInProgress) return fail(state, queue.comm->message());
    if (state == ncclInProgress) result = ncclInProgress;
  }
  return result;
}

}  // namespace

Result<bool> Pending::advance() {
  if (!is_finished) {
    Status status;
    for (Work& work : works) {
      if (!work.test()) return false;
      if (status.ok()) status = work.status();
    }
    is_finished = true;
    if (status.ok()) status = finish();
    if (!status.ok()) return status.take_error();
  }
  for (; next_step < steps.size(); ++next_step) {
    auto is_over = steps[next_step]();
    if (!is_over.ok() || !*is_over) return is_over;
  }
  return true;
}

ncclResult_t run_queues(std::vector<Queue>& queues) {
  if (queues.empty()) return ncclSuccess;
  return queues.front().comm->config.is_blocking ? run_blocking(queues) : run_non_blocking(queues);
}

}  // namespace unisono::nccl
