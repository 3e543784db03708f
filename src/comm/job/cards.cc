#include "comm/job/cards.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "sys/cuda/device.h"
#include "topo/host/cards.h"
#include "transport/socket/rails.h"

namespace unisono::comm {
namespace {

std::optional<topo::PciAddress> address_of_device(int device) {
  if (device < 0) return std::nullopt;
  const auto text = sys::cuda::pci_address_of(device);
  return text.ok() ? topo::parse_pci_address(*text) : std::nullopt;
}

}  // namespace

Status choose_cards(const std::string& sysfs, int device, transport::TransportOptions& options) {
  const bool is_near = options.rails == near_rails;
  if (!is_near && log_level() < LogLevel::info) return {};
  topo::Machine machine = topo::read_machine(sysfs);
  // TCP needs an interface; what has none is a card all the same.
  if (is_near)
    std::erase_if(machine.cards, [](const topo::Card& card) { return card.interfaces.empty(); });
  const topo::CardMap map = topo::map_cards(std::move(machine));
  const topo::CardUser& user = map.user_of(address_of_device(device), sched_getcpu());
  const std::string found = topo::describe(map, user);
  if (!is_near) {
    // Without an interface, the emulated nodes of one host use the loopback.
    log(LogLevel::info, found, "; data between hosts use ",
        options.interface.empty() ? "the loopback" : options.interface,
        options.rails.empty() ? "" : ",", options.rails,
        "; UNISONO_RAILS=near takes the nearest cards");
    return {};
  }
  const std::size_t count = std::min(map.common_cards(user), transport::socket::max_rails);
  if (count == 0) return environment_error("UNISONO_RAILS is near, but ", found);
  options.rails.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& interface = map.machine.cards[user.cards[i].card].interfaces.front();
    if (i == 0)
      options.interface = interface;
    else
      options.rails += str(options.rails.empty() ? "" : ",", interface);
  }
  log(LogLevel::info, found, "; data between hosts use ", options.interface,
      options.rails.empty() ? "" : ",", options.rails, " (UNISONO_RAILS=near)");
  return {};
}

}  // namespace unisono::comm
