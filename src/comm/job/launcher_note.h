// `unisono run` asks each rank that failed whom it blames, because the order in which ranks end
// does not say which one failed first. python/unisono/endings.py reads these notes and writes the
// same ones for Python's errors.
#pragma once

#include <unisono/result.h>

namespace unisono::comm {

// Notes whom an error blames, for the launcher of this process, if it has one that reads notes. A
// rank that is at fault itself notes nothing. `rank` is this process's, and `error.peer` another
// one, in a job of `ranks` ranks; -1: the ranks are the launcher's. Where the launcher numbers
// ranks otherwise, it learns that this rank blames another one, and not which.
void note_culprit(const Error& error, int rank, int ranks);
// The job goes on without that rank. Nothing where note_culprit has noted nothing.
void withdraw_note();

}  // namespace unisono::comm
