// Jobs whose communicators are gone in a process with several ranks, of which others still have
// theirs. A program that destroys its communicators one after another, as one thread with several
// GPUs does, waits for none of them that way.
#pragma once

#include <memory>

#include "comm/job/job.h"

namespace unisono::comm {

// Destroys the job, and those that were left before it: now, or in the first later call that finds
// that no rank of this process uses them. Any thread.
void leave(std::unique_ptr<Job> job);

}  // namespace unisono::comm
