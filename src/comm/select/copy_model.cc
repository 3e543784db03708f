#include <array>
#include <map>
#include <mutex>
#include <tuple>

#include "comm/select/engine_model.h"
#include "comm/select/exchanges.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/on_copy_engines.h"

namespace unisono::comm {
namespace {

// On 4 H200 a copy engine moves 394 GB/s from one GPU to another; a flag's way over NVLink and the
// driver's part take some 5 us a step.
constexpr double start_us = 8;
constexpr double step_us = 5;
constexpr double zero_copy_gb_per_s = 390;
// Copied there and from there, slot by slot: 2 H200 gathered 94 GB/s so, and broadcast 141.
constexpr double slots_gb_per_s = 120;

class CopyModel : public EngineModel {
 public:
  explicit CopyModel(const engine::gpu::CopyLinks::Options& options) : options_(options) {}

  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    if (request.protocol != Protocol::simple || request.channels != 1) return false;
    if (is_reduction(entry.collective)) return false;
    const std::lock_guard lock(mutex_);
    auto [found, is_new] =
        runs_.try_emplace({&entry, request.placement.ranks(), request.root, request.in_place});
    if (is_new) found->second = has_order(entry, request);
    return found->second;
  }
  std::string_view name() const override { return "copy"; }
  trace::ChosenPath path(const PlanToRun&) const override {
    return engine::gpu::copy_path(options_);
  }
  std::span<const int> channels() const override {
    static constexpr std::array one{1};
    return one;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions&) const override {
    const int ranks = request.placement.ranks();
    const plan::Exchange* exchange = exchanges_.of(entry, ranks);
    const int hops = exchange != nullptr ? engine::gpu::zero_copy_hops(*exchange) : 0;
    const double message_bytes = hops == 2 ? block_bytes / ranks : block_bytes;
    const bool is_zero_copy =
        hops > 0 && options_.is_zero_copy_size(static_cast<std::uint64_t>(message_bytes));
    return start_us + step_us * static_cast<double>(cost.steps) +
           1e-3 * cost.bytes_sent / (is_zero_copy ? zero_copy_gb_per_s : slots_gb_per_s);
  }
  int thread_blocks(const algorithm::Entry&, const algorithm::Request&, double) const override {
    return 0;
  }

 private:
  // Whether each rank can do its part in one order, and these fit each other.
  bool has_order(const algorithm::Entry& entry, const algorithm::Request& request) const {
    const auto made = algorithm::make_header(entry, request);
    if (!made.ok()) return false;
    const plan::Header& header = *made;
    if (static_cast<std::size_t>(header.max_step_count) * device::ll128_line_bytes >
        options_.slot_bytes)
      return false;
    std::vector<engine::gpu::CopyProgram> programs;
    for (int rank = 0; rank < header.ranks; ++rank) {
      const auto program = algorithm::make_program(entry, request, rank);
      if (!program.ok()) return false;
      auto lowered = engine::gpu::lower_to_copies(header, *program);
      if (!lowered.ok()) return false;
      programs.push_back(std::move(lowered).value());
    }
    return engine::gpu::check_order(header, programs, options_.slots).ok();
  }

  engine::gpu::CopyLinks::Options options_;
  Exchanges exchanges_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<const algorithm::Entry*, int, int, bool>, bool> runs_;
};

}  // namespace

std::shared_ptr<const EngineModel> copy_model(const engine::gpu::CopyLinks::Options& options) {
  return std::make_shared<CopyModel>(options);
}

}  // namespace unisono::comm
