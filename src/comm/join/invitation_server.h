// The inviting side of invitations: a listener and a thread of this process, for all that it makes.
#pragma once

#include <unisono/invitation.h>
#include <unisono/result.h>

#include <cstdint>

#include "base/settings.h"

namespace unisono::comm {

// The first invitation of a process decides where it listens, what else ranks must have, and how
// frames are protected.
Result<Invitation> make_invitation(const Settings& settings, const InviteOptions& options);
// Ends the invitation of this process with that number; does nothing to one that is over.
void end_invitation(std::uint64_t number);

}  // namespace unisono::comm
