// Unique ids, and the ranks that they bring together.
#pragma once

#include <unisono/communicator.h>
#include <unisono/invitation.h>

#include <string>

#include "config.h"

namespace unisono::nccl {

ncclResult_t write_id(const Invitation& invitation, ncclUniqueId& id);
ncclResult_t read_id(const ncclUniqueId& id, Invitation& invitation);
// That of NCCL_COMM_ID, or else a new one of this process.
Result<Invitation> make_invitation();
// The same as an id.
ncclResult_t make_id(const char* function, ncclUniqueId* id);

// The device that is current on this thread.
ncclResult_t current(int& device);

struct Wanted {
  const char* function;
  int ranks;
  int rank;
  int device;
  Config config;
};
// Tells the other ranks that this one does not come, if it has a rank.
void decline(const Wanted& wanted, const Invitation& invitation, const std::string& why);
// Waits for the other ranks.
Result<Communicator> join(const Wanted& wanted, const Invitation& invitation);

// A rank of its own: what ncclCommInitRankConfig does.
ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config);

}  // namespace unisono::nccl
