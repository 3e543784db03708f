#include "topo/host/place.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/str.h"

namespace unisono::topo {
namespace {

// The hexadecimal number in front of `text`, of 1 to `most_digits` digits, which it takes off.
std::optional<std::uint32_t> take_number(std::string_view& text, std::size_t most_digits) {
  std::uint32_t value = 0;
  const char* const end = text.data() + std::min(text.size(), most_digits);
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

// Below what two paths share, each has at most the port of a switch and the device.
constexpr std::size_t below_one_switch = 2;

}  // namespace

bool PciAddress::same_card(const PciAddress& other) const {
  return domain == other.domain && bus == other.bus && device == other.device;
}

std::string PciAddress::text() const {
  std::array<char, 24> out{};
  std::snprintf(out.data(), out.size(), "%04x:%02x:%02x.%x", domain, bus, device, function);
  return out.data();
}

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  const auto domain = take_number(text, 8);
  if (!domain || !take(text, ':')) return std::nullopt;
  const auto bus = take_number(text, 2);
  if (!bus || !take(text, ':')) return std::nullopt;
  const auto device = take_number(text, 2);
  if (!device || *device > 0x1f || !take(text, '.')) return std::nullopt;
  const auto function = take_number(text, 1);
  if (!function || *function > 7 || !text.empty()) return std::nullopt;
  return PciAddress{*domain, static_cast<std::uint8_t>(*bus), static_cast<std::uint8_t>(*device),
                    static_cast<std::uint8_t>(*function)};
}

std::string_view name(Distance distance) {
  constexpr std::array<std::string_view, distance_count> names{"PIX", "PXB", "PHB", "NODE", "SYS"};
  return names[static_cast<std::size_t>(distance)];
}

std::string_view meaning(Distance distance) {
  constexpr std::array<std::string_view, distance_count> meanings{
      "through at most one PCIe switch", "through several PCIe switches",
      "through the PCIe host bridge", "in the same NUMA node", "through another NUMA node"};
  return meanings[static_cast<std::size_t>(distance)];
}

Distance distance_between(const Place& one, const Place& other) {
  if (!one.root.empty() && one.root == other.root) {
    const auto [here, there] = std::ranges::mismatch(one.path, other.path);
    if (here == one.path.begin()) return Distance::phb;
    const auto rest = std::max(one.path.end() - here, other.path.end() - there);
    return static_cast<std::size_t>(rest) <= below_one_switch ? Distance::pix : Distance::pxb;
  }
  return one.node != unknown_node && one.node == other.node ? Distance::node : Distance::sys;
}

}  // namespace unisono::topo
