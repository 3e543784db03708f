#include <limits>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/bootstrap.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

constexpr std::size_t max_secret_file_bytes = 4096;

Result<int> narrow(std::int64_t value, std::string_view variable) {
  if (value < 0 || value > std::numeric_limits<int>::max())
    return misuse(variable, " is ", value, "; it must be at least 0 and fit 31 bits");
  return static_cast<int>(value);
}

// The setting when it is set, else torchrun's variable.
Result<int> integer_from(Setting setting, TorchrunVariable torchrun, std::string_view what) {
  const std::string_view variable = setting_rows()[static_cast<std::size_t>(setting)].variable;
  if (settings().is_set(setting)) return narrow(settings().integer(setting), variable);
  UNISONO_ASSIGN(const auto value, torchrun_integer(torchrun));
  if (value) return narrow(*value, name(torchrun));
  return misuse("no ", what, " is known: set ", variable,
                ", or start the ranks with `unisono run` or torchrun, which sets ", name(torchrun));
}

Result<std::string> rendezvous_from_torchrun() {
  const auto host = torchrun_text(TorchrunVariable::master_addr);
  UNISONO_ASSIGN(const auto port, torchrun_integer(TorchrunVariable::master_port));
  if (!host || !port)
    return misuse(
        "no rendezvous is known: set UNISONO_RENDEZVOUS to tcp://host:port or "
        "file:///path, or MASTER_ADDR and MASTER_PORT as torchrun does");
  if (*port < 1 || *port >= 65535)
    return misuse("MASTER_PORT is ", *port,
                  "; the rendezvous takes the port after it, which must "
                  "be 2 to 65535");
  return "tcp://" + sys::Address{*host, static_cast<int>(*port) + 1}.text();
}

Result<std::string> secret_from_settings() {
  if (const std::string& secret = settings().text(Setting::secret); !secret.empty()) return secret;
  const std::string& path = settings().text(Setting::secret_file);
  if (path.empty()) return std::string();
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  UNISONO_ASSIGN(std::string secret, world->read_file(path, max_secret_file_bytes, true));
  while (secret.ends_with('\n')) secret.pop_back();
  if (secret.empty()) return environment_error(path, ", which UNISONO_SECRET_FILE names, is empty");
  return secret;
}

}  // namespace

Result<BootstrapOptions> bootstrap_options_from_settings() {
  UNISONO_TRY(settings().check());
  BootstrapOptions out;
  UNISONO_ASSIGN(out.rank, integer_from(Setting::rank, TorchrunVariable::rank, "rank"));
  UNISONO_ASSIGN(out.world_size,
                 integer_from(Setting::world_size, TorchrunVariable::world_size, "world size"));
  UNISONO_ASSIGN(out.secret, secret_from_settings());
  out.rendezvous = settings().text(Setting::rendezvous);
  if (out.rendezvous.empty() && out.world_size > 1) {
    UNISONO_ASSIGN(out.rendezvous, rendezvous_from_torchrun());
  }
  out.interface = settings().text(Setting::interface);
  out.timeout_ns = settings().duration_ns(Setting::bootstrap_timeout);
  return out;
}

}  // namespace unisono::comm
