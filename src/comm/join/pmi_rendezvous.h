// How the ranks that one launcher started find each other through PMI: rank 0 puts the address
// where it listens and a fresh secret there, and the others get them.
#pragma once

#include <unisono/result.h>

#include <optional>
#include <string_view>

#include "comm/join/bootstrap.h"

namespace unisono::comm {

// The rendezvous of BootstrapOptions that is told through PMI.
inline constexpr std::string_view pmi_rendezvous = "pmi://";

// Whether the launcher of this process has left it a connection to speak PMI over.
bool has_pmi();

// Collective over all processes that the launcher started, which must be the job's ranks. Replaces
// pmi_rendezvous in `options` by the address that rank 0 listens at, and an empty secret by the one
// that rank 0 made; on rank 0 it also returns the listener. May be called again, for another job of
// the same processes. The conversation with the launcher ends when the process exits, so that MPI
// can still be initialised; when MPI has been, PMI is MPI's and this is misuse.
Result<std::optional<RendezvousListener>> rendezvous_through_pmi(BootstrapOptions& options);

}  // namespace unisono::comm
