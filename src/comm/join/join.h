// The bootstrap as a coroutine, in any world; bootstrap.h describes the protocol.
#pragma once

#include <memory>
#include <vector>

#include "comm/control/node.h"
#include "comm/join/bootstrap.h"
#include "comm/join/roster.h"

namespace unisono::comm {

struct Joined {
  std::shared_ptr<ControlNode> node;
  Roster roster;
};

// `listener` is rank 0's, if it was opened before. `options.secret` is used as it is, but for
// file://, where an empty one is replaced by that of the file <path>.secret.
sys::Task<Result<Joined>> join_job(sys::World& world, BootstrapOptions options,
                                   SelfDescription self, std::unique_ptr<sys::Listener> listener);

// Where a rendezvous is, from its text.
struct RendezvousPlace {
  bool is_file = false;
  std::string path;      // of file://
  sys::Address address;  // of tcp://
};
Result<RendezvousPlace> parse_rendezvous(std::string_view text);
// The others end with this error where a rank cannot join.
Error cannot_join(int rank, std::string_view why);
// Misuse that names the value that cannot be.
Status check_options(const BootstrapOptions& options, std::size_t common_bytes);

}  // namespace unisono::comm
