#include "engine/gpu/ll128_links.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/settings.h"
#include "base/str.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::PeerLink;

// A row for each generation and link by which lines arrive whole.
struct Row {
  int generation;  // 9 of sm_90
  PeerLink link;
};
constexpr std::array rows{
    Row{7, PeerLink::same_device},  Row{7, PeerLink::nvlink},   //
    Row{8, PeerLink::same_device},  Row{8, PeerLink::nvlink},   //
    Row{9, PeerLink::same_device},  Row{9, PeerLink::nvlink},   //
    Row{10, PeerLink::same_device}, Row{10, PeerLink::nvlink},  //
    Row{12, PeerLink::same_device}, Row{12, PeerLink::nvlink},
};

}  // namespace

Result<Ll128Use> ll128_use_from_settings(const Settings& settings) {
  const std::string& text = settings.text(Setting::gpu_ll128);
  if (text == "auto") return Ll128Use::where_safe;
  if (text == "on") return Ll128Use::always;
  if (text == "off") return Ll128Use::never;
  return misuse("UNISONO_GPU_LL128 is '", text, "'; write auto, on or off");
}

std::string why_no_ll128(Ll128Use use) {
  return use == Ll128Use::never ? "UNISONO_GPU_LL128 is off" : "";
}

std::string why_no_ll128(int architecture, int peer_architecture, PeerLink link) {
  if (architecture / 10 != peer_architecture / 10)
    return str("sm_", architecture, " and sm_", peer_architecture, " are of two generations");
  const int generation = architecture / 10;
  const auto is_of_generation = [&](const Row& row) { return row.generation == generation; };
  if (std::ranges::none_of(rows, is_of_generation))
    return str("sm_", architecture, " is not known to keep stores of 128 bytes whole");
  if (std::ranges::any_of(
          rows, [&](const Row& row) { return is_of_generation(row) && row.link == link; }))
    return {};
  return str("there is ", sys::cuda::name(link), ", and a store of 128 bytes may arrive in parts");
}

}  // namespace unisono::engine::gpu
