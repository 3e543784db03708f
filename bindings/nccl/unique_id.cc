
#include <cstring>
#include <string_view>

#include "device_memory.h"
#include "encryption.h"
#include "group.h"
#include "init.h"
#include "settings.h"

namespace unisono::nccl {
namespace {

// A unique id: these bytes, then the invitation's two texts, each with a 0 behind.
constexpr std::string_view id_magic = "unisono1";

}  // namespace

ncclResult_t write_id(const Invitation& invitation, ncclUniqueId& id) {
  std::string bytes(id_magic);
  bytes += invitation.rendezvous + '\0' + invitation.secret + '\0';
  if (bytes.size() > sizeof(id.internal))
    return fail(ncclSystemError, text("the address ", invitation.rendezvous, " and a secret of ",
                                      invitation.secret.size(), " characters do not fit the ",
                                      sizeof(id.internal), " bytes of a unique id"));
  std::memset(id.internal, 0, sizeof(id.internal));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return ncclSuccess;
}

ncclResult_t read_id(const ncclUniqueId& id, Invitation& invitation) {
  std::string_view bytes(id.internal, sizeof(id.internal));
  if (!bytes.starts_with(id_magic))
    return fail(ncclInvalidArgument,
                "the unique id was not created by Unisono's ncclGetUniqueId; load "
                "libunisono_nccl.so as NCCL in all processes");
  bytes.remove_prefix(id_magic.size());
  for (std::string* part : {&invitation.rendezvous, &invitation.secret}) {
    const auto end = bytes.find('\0');
    if (end == std::string_view::npos)
      return fail(ncclInvalidArgument,
                  "the unique id is damaged: a string in it is not terminated");
    *part = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
  }
  return ncclSuccess;
}

Result<Invitation> make_invitation() {
  const auto& address = value_of(Setting::comm_id);
  if (!address.ok()) return Error(address.error());
  const Encryption encryption = use_encryption();
  return invite({.interface = {},
                 .address = address->text,
                 .shared_key = encryption.key,
                 .settings = encryption.settings()});
}

ncclResult_t make_id(const char* function, ncclUniqueId* id) {
  if (id == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the id is null"));
  const auto invitation = make_invitation();
  return invitation.ok() ? write_id(*invitation, *id) : fail(invitation.error());
}

ncclResult_t current(int& device) {
  auto found = current_device();
  if (!found.ok())
    return fail(ncclUnhandledCudaError,
                found.error().describe() +
                    "; set UNISONO_NCCL_HOST_MEMORY=1 to run a program without a GPU");
  device = *found;
  return ncclSuccess;
}

namespace {

InitOptions options_of(const Wanted& wanted, const Invitation& invitation) {
  const Encryption encryption = use_encryption();
  InitOptions options;
  options.rank = wanted.rank;
  options.world_size = wanted.ranks;
  options.rendezvous = invitation.rendezvous;
  options.secret = invitation.secret;
  options.device = host_memory_stands_in() ? -1 : wanted.device;
  options.has_signals = true;
  options.shared_key = encryption.key;
  options.settings = encryption.settings();
  return options;
}

}  // namespace

Result<Communicator> join(const Wanted& wanted, const Invitation& invitation) {
  return Communicator::init(options_of(wanted, invitation));
}

void decline(const Wanted& wanted, const Invitation& invitation, const std::string& why) {
  if (wanted.rank < 0 || wanted.rank >= wanted.ranks) return;
  Error error;
  error.kind = ErrorKind::environment;
  error.message = why;
  unisono::decline(options_of(wanted, invitation), error);
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return make_id("ncclGetUniqueId", id); }
UNISONO_NCCL_EXPORT(ncclGetUniqueId);
