// The network cards of this host, and which of them are near its GPUs and processors.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "topo/host/cards.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// Unknown values are None, so that JSON has null for them.
nb::dict card_of(const topo::Card& card, int users) {
  nb::dict out;
  out["name"] = card.name();
  out["interfaces"] = card.interfaces;
  out["rdma_devices"] = card.rdma_devices;
  out["pci_address"] =
      card.address ? std::optional<std::string>(card.address->text()) : std::nullopt;
  out["gb_s"] = card.mbit_per_second > 0
                    ? std::optional(static_cast<double>(card.mbit_per_second) / 8000)
                    : std::nullopt;
  out["users"] = users;
  return out;
}

nb::dict user_of(const topo::CardMap& map, const topo::CardUser& user) {
  nb::list cards;
  for (const topo::NearCard& near : user.cards)
    cards.append(card_of(map.machine.cards[near.card], near.users));
  nb::dict out;
  out["user"] = user.name();
  out["numa_node"] = user.node == topo::unknown_node ? std::nullopt : std::optional(user.node);
  out["distance"] =
      user.cards.empty() ? std::nullopt : std::optional(name(user.cards.front().distance));
  out["cards"] = cards;
  out["description"] = topo::describe(map, user);
  return out;
}

nb::list near_cards(const std::string& sysfs) {
  const topo::CardMap map = topo::map_cards(topo::read_machine(sysfs));
  nb::list out;
  for (const topo::CardUser& user : map.gpus) out.append(user_of(map, user));
  for (const topo::CardUser& user : map.nodes) out.append(user_of(map, user));
  return out;
}

}  // namespace

void bind_cards(nb::module_& module) { module.def("near_cards", &near_cards, nb::arg("sysfs")); }

}  // namespace unisono::python
