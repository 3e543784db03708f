#include "group.h"

#include <algorithm>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "queue.h"

namespace unisono::nccl {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Job> jobs;
  std::vector<Queue> queues;
};
thread_local Group group;

ncclResult_t run_job(const Job& job) {
  Outcome outcome = job.work();
  job.comm->end_job(outcome.code, outcome.message);
  return outcome.code == ncclSuccess ? ncclSuccess : fail(outcome.code, std::move(outcome.message));
}

void drop(const Job& job, ncclResult_t code, const std::string& why) {
  job.comm->end_job(code, why);
  if (job.decline) job.decline(why);
}

// No job of a line without a thread is done.
ncclResult_t refuse(std::span<const std::vector<Job>> lines, const std::system_error& why) {
  const std::string message =
      std::string("no thread can be started for the communicators of a group: ") + why.what() +
      "; this user (ulimit -u) or container (pids.max) may have no more";
  for (const std::vector<Job>& line : lines)
    for (const Job& job : line) drop(job, ncclSystemError, message);
  return fail(ncclSystemError, message);
}

// Jobs of one communicator keep their order, on one thread.
ncclResult_t run_jobs(std::vector<Job> jobs) {
  if (jobs.empty()) return ncclSuccess;
  const bool is_blocking = jobs.front().comm->config.is_blocking;
  std::vector<std::vector<Job>> lines;
  for (Job& job : jobs) {
    const auto line = std::ranges::find_if(
        lines, [&](const auto& other) { return other.front().comm == job.comm; });
    if (line != lines.end())
      line->push_back(std::move(job));
    else
      lines.emplace_back().push_back(std::move(job));
  }
  if (!is_blocking) {
    for (std::size_t i = 0; i < lines.size(); ++i) try {
        std::thread([line = lines[i]] {
          for (const Job& job : line) run_job(job);
        }).detach();
      } catch (const std::system_error& why) {
        return refuse(std::span(lines).subspan(i), why);
      }
    return ncclInProgress;
  }
  std::vector<ncclResult_t> results(lines.size(), ncclSuccess);
  const auto run_line = [&](std::size_t i) {
    for (const Job& job : lines[i])
      if (const ncclResult_t result = run_job(job); results[i] == ncclSuccess) results[i] = result;
  };
  // Lines may wait for each other, so that all run or none.
  std::promise<bool> all_run;
  const std::shared_future<bool> runs = all_run.get_future().share();
  std::vector<std::thread> threads;
  std::optional<std::system_error> refused;
  for (std::size_t i = 1; i < lines.size() && !refused; ++i) try {
      threads.emplace_back([&run_line, i, runs] {
        if (runs.get()) run_line(i);
      });
    } catch (const std::system_error& why) {
      refused = why;
    }
  all_run.set_value(!refused);
  if (!refused) run_line(0);
  for (std::thread& thread : threads) thread.join();
  if (refused) return refuse(lines, *refused);
  for (const ncclResult_t result : results)
    if (result != ncclSuccess) return result;
  return ncclSuccess;
}

// A group is blocking or not as a whole.
bool fits(const Handle& comm) {
  const ncclComm* other = nullptr;
  if (!group.jobs.empty())
    other = group.jobs.front().comm.get();
  else if (!group.queues.empty())
    other = group.queues.front().comm.get();
  if (other == nullptr || other->config.is_blocking == comm->config.is_blocking) return true;
  fail(ncclInvalidArgument, "blocking and non-blocking communicators are in one group");
  return false;
}

Queue& queue_of(const Handle& comm) {
  for (Queue& queue : group.queues)
    if (queue.comm == comm) return queue;
  return group.queues.emplace_back(Queue{.comm = comm});
}

void give_up(std::vector<Job>& jobs, ncclResult_t error) {
  for (const Job& job : jobs)
    drop(job, error, "another call of the same group failed, so nothing of it was run");
}

ncclResult_t run_group(Group& whole) {
  std::vector<Job> early, late;
  for (Job& job : whole.jobs) (job.is_late ? late : early).push_back(std::move(job));
  ncclResult_t result = run_jobs(std::move(early));
  if (goes_on(result))
    if (const ncclResult_t data = run_queues(whole.queues); data != ncclSuccess) result = data;
  if (!goes_on(result)) {
    give_up(late, result);
    return result;
  }
  const ncclResult_t last = run_jobs(std::move(late));
  return last != ncclSuccess ? last : result;
}

}  // namespace

Outcome outcome_of(const Status& status) {
  if (status.ok()) return {};
  return {code_of(status.error()), status.error().describe()};
}

ncclResult_t add(Job job) {
  if (!fits(job.comm)) return ncclInvalidArgument;
  job.comm->begin_job();
  if (group.depth == 0) {
    std::vector<Job> alone;
    alone.push_back(std::move(job));
    return run_jobs(std::move(alone));
  }
  group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t add(const Handle& comm, const Call& call) {
  if (group.depth == 0 && comm->config.is_blocking) {
    const Status status = comm->communicator().run(call);
    return status.ok() ? ncclSuccess : fail(status.error());
  }
  if (!fits(comm)) return ncclInvalidArgument;
  if (group.depth == 0) {
    std::vector<Queue> alone{Queue{.comm = comm, .calls = {call}}};
    return run_queues(alone);
  }
  queue_of(comm).calls.push_back(call);
  return ncclSuccess;
}

ncclResult_t add(const Handle& comm, const Message& message, void* stream) {
  if (!fits(comm)) return ncclInvalidArgument;
  if (group.depth == 0) {
    std::vector<Queue> alone{Queue{.comm = comm, .messages = {Sent{message, stream}}}};
    return run_queues(alone);
  }
  queue_of(comm).messages.push_back(Sent{message, stream});
  return ncclSuccess;
}

ncclResult_t add(const Handle& comm, Step step, bool is_wait) {
  if (!fits(comm)) return ncclInvalidArgument;
  Queue alone{.comm = comm};
  Queue& queue = group.depth == 0 ? alone : queue_of(comm);
  (is_wait ? queue.waits : queue.puts).push_back(std::move(step));
  if (group.depth > 0) return ncclSuccess;
  std::vector<Queue> queues{std::move(alone)};
  return run_queues(queues);
}

ncclComm_t add_child(const ncclComm& parent, const Config& config, Communicator made) {
  const Handle handle = add_handle(made.rank(), made.size(), parent.device, config);
  handle->begin_job();
  handle->adopt(std::move(made));
  handle->end_job(ncclSuccess, {});
  return handle.get();
}

void begin_group() { ++group.depth; }

ncclResult_t end_group() {
  if (group.depth == 0)
    return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart on this thread");
  if (--group.depth > 0) return ncclSuccess;
  Group whole = std::exchange(group, Group());
  if (whole.error != ncclSuccess) {
    give_up(whole.jobs, whole.error);
    return whole.error;
  }
  return run_group(whole);
}

bool drop_group() {
  if (group.depth == 0) return false;
  if (--group.depth > 0) return true;
  Group whole = std::exchange(group, Group());
  give_up(whole.jobs, ncclInvalidUsage);
  return true;
}

bool in_group() { return group.depth > 0; }

ncclResult_t noted(ncclResult_t result) {
  if (!goes_on(result) && group.depth > 0 && group.error == ncclSuccess) group.error = result;
  return result;
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclGroupStart() {
  begin_group();
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclGroupStart);

ncclResult_t ncclGroupEnd() { return end_group(); }
UNISONO_NCCL_EXPORT(ncclGroupEnd);

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  if (info == nullptr || info->magic != simulation_magic)
    return noted(fail(ncclInvalidArgument,
                      "ncclGroupSimulateEnd: initialise the structure with "
                      "NCCL_SIM_INFO_INITIALIZER"));
  if (!drop_group())
    return fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart on this thread");
  return fail(ncclInvalidUsage,
              "ncclGroupSimulateEnd: Unisono has no estimate of a group's time behind NCCL's "
              "interface; `unisono simulate` has one. The group was ended and nothing was run");
}
UNISONO_NCCL_EXPORT(ncclGroupSimulateEnd);
