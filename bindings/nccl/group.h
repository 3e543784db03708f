// Groups: what is called between ncclGroupStart and the outermost ncclGroupEnd starts together, of
// one thread. Without a group, every call is a group of its own.
//
// At the end come jobs (making communicators), then the collectives and messages, then late jobs
// (finalize). Of one communicator all collectives go first, in their order, then all messages at
// once, then puts and signals, then waits for signals, so that ranks which mix them in different
// orders meet. Jobs of different communicators run
// on threads of their own, as ranks of one process wait for each other in them.
#pragma once

#include <functional>

#include "communicator.h"

namespace unisono::nccl {

struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string message;
};
Outcome outcome_of(const Status& status);

struct Job {
  Handle comm;  // whose state is "in progress" meanwhile
  std::function<Outcome()> work;
  bool is_late = false;
  // Tells other ranks that wait for this job why it is not run.
  std::function<void(const std::string&)> decline = {};
};

// Each runs at once without a group, else at its end. ncclInProgress on non-blocking communicators.
ncclResult_t add(Job job);
ncclResult_t add(const Handle& comm, const Call& call);
ncclResult_t add(const Handle& comm, const Message& message, void* stream);
ncclResult_t add(const Handle& comm, Step step, bool is_wait);

// The handle of a communicator that a job of its parent has made.
ncclComm_t add_child(const ncclComm& parent, const Config& config, Communicator made);

void begin_group();
ncclResult_t end_group();
// Ends the outermost group without running it. False: there is none.
bool drop_group();
bool in_group();
// The result of a call inside of a group: the first error is the group's.
ncclResult_t noted(ncclResult_t result);

}  // namespace unisono::nccl
