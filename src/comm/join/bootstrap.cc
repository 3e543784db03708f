#include "comm/join/bootstrap.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/control/control_runtime.h"
#include "comm/control/group.h"
#include "comm/join/join.h"
#include "sys/own_address.h"
#include "sys/real_socket.h"
#include "sys/real_world.h"
#include "sys/user_secret.h"

namespace unisono::comm {

namespace {

// The policy of bootstrap.h for a job without a secret.
Result<std::string> secret_for(const BootstrapOptions& options) {
  if (!options.secret.empty() || options.world_size == 1) return options.secret;
  UNISONO_ASSIGN(const RendezvousPlace place, parse_rendezvous(options.rendezvous));
  if (place.is_file) return std::string();
  if (place.address.is_loopback()) return sys::user_secret(sys::user_directory());
  if (!options.insecure)
    return misuse(
        "the job has no secret, and other hosts can reach its rendezvous ", options.rendezvous,
        ", so anybody could join it. Set the same UNISONO_SECRET_FILE on every rank (a file that "
        "only "
        "its owner can read) or UNISONO_SECRET",
        options.secret_was_taken ? " (the process that started this one read it and overwrote "
                                   "it in the environment; child processes need the file)"
                                 : "",
        ", or set UNISONO_INSECURE=1 if nobody else can reach that network");
  if (options.rank == 0)
    log(LogLevel::warn, "UNISONO_INSECURE: the job has no secret, so everybody who can reach ",
        options.rendezvous, " can join it");
  return std::string();
}

Result<BootstrapResult> bootstrap_over(std::shared_ptr<sys::World> world,
                                       std::unique_ptr<sys::Listener> listener,
                                       const BootstrapOptions& options,
                                       const SelfDescription& self) {
  BootstrapOptions complete = options;
  if (options.world_size > 1) {
    UNISONO_ASSIGN(complete.secret, secret_for(options));
  }
  auto runtime = std::make_shared<ControlRuntime>(std::move(world));
  auto joined = runtime->world().run(
      join_job(runtime->world(), std::move(complete), self, std::move(listener)));
  if (!joined.ok()) return joined.take_error();
  runtime->set_node(std::move(joined->node));
  auto exchange =
      std::make_shared<GroupExchange>(runtime->node(), GroupId{runtime->node()->job(), 0},
                                      Members::all(options.world_size), options.rank);
  if (options.world_size > options.most_addresses) UNISONO_TRY(runtime->serve_always());
  BootstrapResult out;
  out.key = runtime->node()->job_key();
  out.roster = std::move(joined->roster);
  out.records = PublishedRecords(runtime);
  if (options.world_size > 1) out.host = runtime->node()->address().host;
  out.world = ControlGroup::make(std::move(runtime), std::move(exchange));
  return out;
}

}  // namespace

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self) {
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  return bootstrap_over(std::move(world), nullptr, options, self);
}

Result<BootstrapResult> bootstrap(std::shared_ptr<sys::World> world,
                                  const BootstrapOptions& options, const SelfDescription& self) {
  return bootstrap_over(std::move(world), nullptr, options, self);
}

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self,
                                  RendezvousListener listener) {
  if (options.rank != 0)
    return misuse("rank ", options.rank,
                  " was given the rendezvous listener; only rank 0 may have it");
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  UNISONO_ASSIGN(auto adopted, world->adopt_listener(std::exchange(listener.descriptor_, -1)));
  return bootstrap_over(std::move(world), std::move(adopted), options, self);
}

RendezvousListener::RendezvousListener(int descriptor, std::string rendezvous)
    : descriptor_(descriptor), rendezvous_(std::move(rendezvous)) {}

RendezvousListener::RendezvousListener(RendezvousListener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      rendezvous_(std::move(other.rendezvous_)) {}

RendezvousListener& RendezvousListener::operator=(RendezvousListener&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(rendezvous_, other.rendezvous_);
  return *this;
}

RendezvousListener::~RendezvousListener() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<RendezvousListener> RendezvousListener::open(std::string_view interface, int port) {
  sys::Address where;
  where.host = interface.empty() ? sys::own_address() : std::string(interface);
  where.port = port;
  UNISONO_ASSIGN(const int descriptor, sys::open_listener(where));
  RendezvousListener out(descriptor, {});
  UNISONO_ASSIGN(const sys::Address got, sys::local_address(descriptor));
  out.rendezvous_ = "tcp://" + got.text();
  return out;
}

Result<std::string> make_secret() { return sys::random_secret(); }

}  // namespace unisono::comm
