// The way from an invitation to rank 0's rendezvous. The inviting process holds a reception: a
// listener and a thread. Each rank connects, both sides prove the invitation's secret, whose number
// the rank tells (handshake.h), and the rank enrols as it would at a rendezvous. Each invitation
// has a secret of its own, which ends with it.
// Rank 0 enrols with what it tells the others (meet.h): the address where it listens from then on.
// A rank that cannot join enrols with that; if rank 0 has not come yet, all that come are told it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/join/bootstrap.h"

namespace unisono::comm {

// Ranks must have this in addition to an invitation's secret: `shared_key`, and the secret of
// UNISONO_SECRET_FILE where that is set. Who only sees an invitation has not got it.
Result<std::string> invited_key(const Settings& settings, const std::string& shared_key);

// Replaces an invitation in `options` by the rendezvous that it leads to. On rank 0 that is a new
// listener.
Result<std::optional<RendezvousListener>> follow_invitation(BootstrapOptions& options);

}  // namespace unisono::comm
