#include "topo/host/machine.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/str.h"
#include "topo/host/sysfs.h"

namespace unisono::topo {
namespace {

constexpr std::int64_t class_network = 0x02;
constexpr std::int64_t class_display = 0x03;
constexpr std::int64_t vendor_nvidia = 0x10de;
constexpr const char* pci_devices = "bus/pci/devices";
// Faster than any card: what is above it is no speed.
constexpr std::int64_t most_mbit_per_second = 100'000'000;

// The way to a device, and the folder of its last PCI function.
struct PciLocation {
  Place place;
  std::string folder;
};

// `path` is without links: "devices/pci0000:50/0000:50:01.0/0000:51:00.0/net/eth1".
PciLocation locate(const Sysfs& files, std::string_view path, const std::vector<NumaNode>& nodes) {
  PciLocation out;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (out.place.root.empty()) {
      if (part.starts_with("pci") && part.find(':') != std::string_view::npos)
        out.place.root = part;
    } else if (const auto address = parse_pci_address(part)) {
      out.place.path.push_back(*address);
      out.folder = path.substr(0, end);
    }
    begin = end + 1;
  }
  if (out.place.path.empty()) out.place.root.clear();
  if (nodes.size() == 1) {
    out.place.node = nodes.front().number;
  } else if (!out.folder.empty()) {
    const auto node = files.number(str(out.folder, "/numa_node"));
    for (const NumaNode& one : nodes)
      if (node == one.number) out.place.node = one.number;
  }
  return out;
}

std::vector<NumaNode> read_nodes(const Sysfs& files) {
  std::vector<NumaNode> out;
  for (const std::string& name : files.names("devices/system/node")) {
    constexpr std::string_view prefix = "node";
    if (!name.starts_with(prefix)) continue;
    int number = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, number);
    if (error != std::errc() || stop != end || number < 0) continue;
    // Memory without processors, as of a GPU, is a node, too: nothing runs there.
    const auto processors = files.line(str("devices/system/node/", name, "/cpulist"));
    if (processors && !processors->empty()) out.push_back({number, *processors});
  }
  std::ranges::sort(out, {}, &NumaNode::number);
  return out;
}

std::int64_t class_of(const Sysfs& files, const std::string& folder) {
  return files.number(str(folder, "/class")).value_or(0) >> 16;
}

std::vector<Gpu> read_gpus(const Sysfs& files, const std::vector<NumaNode>& nodes) {
  std::vector<Gpu> out;
  for (const std::string& name : files.names(pci_devices)) {
    const auto address = parse_pci_address(name);
    const auto path = files.resolved(str(pci_devices, '/', name));
    if (!address || !path) continue;
    if (class_of(files, *path) != class_display ||
        files.number(str(*path, "/vendor")) != vendor_nvidia)
      continue;
    PciLocation found = locate(files, *path, nodes);
    // A link that leads to another device says nothing of this one.
    if (found.place.path.empty() || found.place.path.back() != *address) continue;
    out.push_back({*address, std::move(found.place)});
  }
  std::ranges::sort(out, {}, &Gpu::address);
  return out;
}

std::int64_t plausible(std::int64_t mbit_per_second) {
  return mbit_per_second > 0 && mbit_per_second <= most_mbit_per_second ? mbit_per_second : 0;
}

// "200 Gb/sec (4X HDR)" is 200,000.
std::int64_t mbit_of_rate(std::string_view rate) {
  double gbit = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gbit);
  const std::string_view unit(end, static_cast<std::size_t>(rate.data() + rate.size() - end));
  const double most = static_cast<double>(most_mbit_per_second) / 1000;
  // No comparison holds for what is not a number.
  const bool is_rate =
      error == std::errc() && unit.starts_with(" Gb/sec") && gbit > 0 && gbit <= most;
  return is_rate ? static_cast<std::int64_t>(gbit * 1000) : 0;
}

void add_interface(const Sysfs& files, const std::string& name, Card& card) {
  const std::string folder = str("class/net/", name);
  card.interfaces.push_back(name);
  const std::string state = files.line(str(folder, "/operstate")).value_or("");
  // Drivers that do not tell say "unknown".
  card.is_up = card.is_up || state == "up" || state == "unknown";
  card.mbit_per_second =
      std::max(card.mbit_per_second, plausible(files.number(str(folder, "/speed")).value_or(0)));
}

void add_rdma_device(const Sysfs& files, const std::string& name, Card& card) {
  card.rdma_devices.push_back(name);
  const std::string ports = str("class/infiniband/", name, "/ports");
  for (const std::string& port : files.names(ports)) {
    const std::string folder = str(ports, '/', port);
    // "4: ACTIVE"
    if (!files.line(str(folder, "/state")).value_or("").starts_with("4:")) continue;
    card.is_up = true;
    card.mbit_per_second =
        std::max(card.mbit_per_second, mbit_of_rate(files.line(str(folder, "/rate")).value_or("")));
  }
}

class CardReader {
 public:
  CardReader(const Sysfs& files, const std::vector<NumaNode>& nodes)
      : files_(files), nodes_(nodes) {}

  template <class Add>
  void read_class(const char* folder, const Add& add) {
    for (const std::string& name : files_.names(folder))
      if (Card* const card = card_of(str(folder, '/', name))) add(files_, name, *card);
  }

  std::vector<Card> take() {
    std::vector<PciAddress> here;
    for (const Card& card : cards_)
      if (card.address) here.push_back(*card.address);
    std::erase_if(cards_, [&](const Card& card) { return is_covered(card, here); });
    std::ranges::stable_sort(cards_, [](const Card& one, const Card& other) {
      if (!one.address || !other.address) return one.address.has_value() && !other.address;
      return *one.address < *other.address;
    });
    return std::move(cards_);
  }

 private:
  // Nothing for what is no network card: bridges and tunnels, and USB adapters, which are what a
  // host's management controller looks like.
  Card* card_of(const std::string& entry) {
    const auto path = files_.resolved(entry);
    if (!path || !path->starts_with("devices/") || path->starts_with("devices/virtual/"))
      return nullptr;
    PciLocation found = locate(files_, *path, nodes_);
    if (found.folder.empty()) {
      cards_.push_back({.place = std::move(found.place)});
      return &cards_.back();
    }
    if (class_of(files_, found.folder) != class_network) return nullptr;
    const PciAddress address = found.place.path.back();
    const auto known = std::ranges::find(cards_, std::optional(address), &Card::address);
    if (known != cards_.end()) return &*known;
    cards_.push_back({.address = address, .place = std::move(found.place)});
    return &cards_.back();
  }

  // A virtual function carries what its physical function does, which is here, too.
  bool is_covered(const Card& card, const std::vector<PciAddress>& here) const {
    if (!card.address) return false;
    const auto physical = files_.resolved(str(pci_devices, '/', card.address->text(), "/physfn"));
    if (!physical) return false;
    const auto address =
        parse_pci_address(std::string_view(*physical).substr(physical->rfind('/') + 1));
    return address && std::ranges::find(here, *address) != here.end();
  }

  const Sysfs& files_;
  const std::vector<NumaNode>& nodes_;
  std::vector<Card> cards_;
};

}  // namespace

const std::string& Card::name() const {
  return rdma_devices.empty() ? interfaces.front() : rdma_devices.front();
}

int Machine::node_of_processor(int processor) const {
  for (const NumaNode& node : nodes)
    if (list_has(node.processors, processor)) return node.number;
  return unknown_node;
}

Machine read_machine(const std::string& root) {
  const Sysfs files(root);
  Machine out;
  if (!files.exists()) {
    out.note = str("there is no ", root, ", so no distance to a network card is known");
    return out;
  }
  out.nodes = read_nodes(files);
  out.gpus = read_gpus(files, out.nodes);
  CardReader cards(files, out.nodes);
  cards.read_class("class/net", add_interface);
  cards.read_class("class/infiniband", add_rdma_device);
  out.cards = cards.take();
  if (out.nodes.empty())
    out.note = str(root, " has no NUMA nodes, so only PCI paths tell distances");
  return out;
}

}  // namespace unisono::topo
