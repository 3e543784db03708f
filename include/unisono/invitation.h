// Invitations: how ranks find each other where a process can send all others a few bytes, but
// nobody can choose a port beforehand. NCCL's unique ids are such bytes.
#pragma once

#include <unisono/result.h>
#include <unisono/settings.h>

#include <string>

namespace unisono {

struct InitOptions;  // <unisono/communicator.h>

// Every rank puts it into InitOptions. It is valid for one communicator, and is over once the ranks
// have all come, once it is withdrawn, and a day after it was made. Until then a process that has
// it can take a rank's place.
struct Invitation {
  std::string rendezvous;  // "meet://10.0.0.1:4711/0123456789abcdef", at most 71 characters
  std::string secret;      // 32 hexadecimal digits
};

struct InviteOptions {
  // An address or an interface's name; empty takes UNISONO_INTERFACE, then this host's address on
  // the way to MASTER_ADDR, on its default route, or of an interface (docs/how-to/start.md).
  std::string interface;
  // host:port where rank 0 will listen itself; see below.
  std::string address;
  std::string shared_key;  // as in InitOptions
  SettingValues settings;  // as in InitOptions
};

// This process, which need not become a rank, tells the ranks that connect to it where rank 0
// listens. A thread of this process does that as long as the process lives, for all its
// invitations; the first one decides its interface, shared key and protection. With an address, no
// thread is needed: the invitation names that address and the secret of the settings, and all
// processes may invite alike.
Result<Invitation> invite(const InviteOptions& options = {});

// Ends an invitation of this process: nobody joins by it from now on, and ranks that wait for rank
// 0 get an error. It does nothing to one that is over, or that names an address.
void withdraw(const Invitation& invitation);

// For a rank that fails before it can call Communicator::init with these options: the other ranks
// are told why, and their init ends with an error that names this rank. It takes at most five
// seconds; ranks that come later are not told, unless an invitation leads to rank 0 and it has not
// come. Communicator::init does the same for what it refuses itself.
void decline(const InitOptions& options, const Error& why);

}  // namespace unisono
