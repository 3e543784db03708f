#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "comm/engine_model.h"
#include "engine/gpu/direct.h"
#include "engine/gpu/lower.h"

namespace unisono::comm {
namespace {

using device::DirectKind;

// Measured on 4 H200 by tools/gpu_test (bench/results/gpu_bench_*).
constexpr double launch_us = 4;
constexpr double hop_us = 5;
// A message more that a thread block takes in turn to combine it.
constexpr double combine_us = 5;
// Waiting for one more thread block to begin.
constexpr double block_us = 0.02;
// By protocol: what a thread block sends, and what all of them do at most.
constexpr std::array<double, protocol_count> block_gb_per_s{6, 4.7, 7};
constexpr std::array<double, protocol_count> link_gb_per_s{330, 150, 280};
constexpr double reduce_gb_per_s = 5000;
// Where a rank combines what several others send.
constexpr double fan_in_gb_per_s = 260;
// Where its hops lead to one rank after the other.
constexpr double turns_gb_per_s = 270;
constexpr double turn_us = 4;

// The kernels by hand, of one hop and of two.
struct ByHand {
  double us;
  double gb_per_s;
};
constexpr ByHand one_hop{5, 120};
constexpr ByHand two_hops{8, 215};

class DeviceModel : public EngineModel {
 public:
  explicit DeviceModel(const engine::gpu::Options& options) : options_(options) {}

  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    const plan::Header header = entry.header(request);
    if (header.channels > engine::gpu::limits().max_channels ||
        static_cast<std::size_t>(header.max_step_count) * device::ll128_line_bytes >
            options_.slot_bytes)
      return false;
    const Blocks blocks = blocks_of(entry, request);
    return blocks.exist && blocks.all * request.channels <= engine::gpu::limits().max_thread_blocks;
  }
  std::string_view name() const override { return "gpu"; }
  std::span<const int> channels() const override {
    static constexpr std::array tried{1, 4, 8, 16, 30, 60};
    return tried;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes) const override {
    if (const auto by_hand = how_by_hand(entry, request, block_bytes)) {
      const ByHand& how = by_hand->kind == DirectKind::two_shot ? two_hops : one_hop;
      return how.us + 1e-3 * cost.bytes_sent / how.gb_per_s;
    }
    const auto protocol = static_cast<std::size_t>(request.protocol);
    const Blocks blocks = blocks_of(entry, request);
    const bool fans_in = cost.bytes_reduced > 0 && cost.messages > cost.steps;
    const double of_blocks = block_gb_per_s[protocol] * blocks.sending * request.channels;
    const bool takes_turns = !fans_in && cost.steps > 1 && blocks.sending > 1;
    double of_links = link_gb_per_s[protocol];
    if (fans_in) of_links = std::min(of_links, fan_in_gb_per_s);
    if (takes_turns) of_links = std::min(of_links, turns_gb_per_s);
    return launch_us + (hop_us + (takes_turns ? turn_us : 0)) * static_cast<double>(cost.steps) +
           (fans_in ? combine_us * static_cast<double>(cost.messages - cost.steps) : 0) +
           block_us * blocks.all * request.channels + 1e-3 * cost.bytes_reduced / reduce_gb_per_s +
           1e-3 * cost.bytes_sent / std::min(of_blocks, of_links);
  }
  int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                    double block_bytes) const override {
    const int interpreted = blocks_of(entry, request).all * request.channels;
    const auto by_hand = how_by_hand(entry, request, block_bytes);
    if (!by_hand) return interpreted;
    // A call that may not have as many is interpreted.
    return std::min(interpreted, engine::gpu::direct_least_blocks(
                                     by_hand->kind, static_cast<std::size_t>(by_hand->hop_bytes),
                                     request.placement.ranks()));
  }

 private:
  // Thread blocks of one channel, and those of them that send.
  struct Blocks {
    bool exist = false;
    int all = 0;
    int sending = 0;
  };
  struct CallByHand {
    DirectKind kind;
    double hop_bytes;  // to each rank
  };
  // Nothing: it is interpreted.
  static std::optional<CallByHand> how_by_hand(const algorithm::Entry& entry,
                                               const algorithm::Request& request,
                                               double block_bytes) {
    const int ranks = request.placement.ranks();
    if (request.protocol != Protocol::ll || request.channels != 1) return std::nullopt;
    const auto kind = engine::gpu::direct_kind(entry.collective, entry.name, ranks);
    if (!kind) return std::nullopt;
    const double hop_bytes = *kind == DirectKind::two_shot ? block_bytes / ranks : block_bytes;
    if (hop_bytes > static_cast<double>(device::direct_max_bytes(*kind, ranks)))
      return std::nullopt;
    return CallByHand{*kind, hop_bytes};
  }
  Blocks blocks_of(const algorithm::Entry& entry, const algorithm::Request& request) const {
    const std::lock_guard lock(mutex_);
    auto [found, is_new] = blocks_.try_emplace({&entry, request.placement.ranks()});
    if (is_new) {
      algorithm::Request of_one = request;
      of_one.channels = 1;
      const auto program = algorithm::make_program(entry, of_one, 0);
      found->second.exist = program.ok();
      if (program.ok())
        for (const plan::ThreadBlock& block : program->thread_blocks) {
          ++found->second.all;
          found->second.sending += block.send_peer >= 0 ? 1 : 0;
        }
      found->second.sending = std::max(found->second.sending, 1);
    }
    return found->second;
  }

  engine::gpu::Options options_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<const algorithm::Entry*, int>, Blocks> blocks_;
};

}  // namespace

std::shared_ptr<const EngineModel> device_model(const engine::gpu::Options& options) {
  return std::make_shared<DeviceModel>(options);
}

}  // namespace unisono::comm
