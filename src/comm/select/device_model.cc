#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/str.h"
#include "base/units.h"
#include "comm/select/engine_model.h"
#include "comm/select/exchanges.h"
#include "comm/select/registration.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/ll_all_pairs.h"
#include "engine/gpu/lower.h"
#include "plan/chunk_layout.h"

namespace unisono::comm {
namespace {

// Measured on 4 H200 by tools/gpu_test (studies/results/gpu_bench_interpreted_4.txt).
constexpr double launch_us = 4;
constexpr double hop_us = 5;
// A message more that a thread block takes in turn to combine it.
constexpr double combine_us = 5;
// Waiting for one more thread block to begin.
constexpr double block_us = 0.02;
// By protocol: what a thread block sends, and what all of them do at most.
constexpr std::array<double, protocol_count> block_gb_per_s{6, 4.7, 7};
constexpr std::array<double, protocol_count> link_gb_per_s{340, 150, 280};
constexpr double reduce_gb_per_s = 5000;
// Where a rank combines what several others send.
constexpr double fan_in_gb_per_s = 260;
// Where its hops lead to one rank after the other.
constexpr double turns_gb_per_s = 270;
constexpr double turn_us = 4;

// A hop of a chain from or to a root: the next begins when the first tiles are there. Between two
// ranks there is nothing else.
constexpr double chain_us = 10;
// A chain that adds, in LL128, where neighbours alone send to each other line by line.
struct Chain {
  double hop_us;
  double block_gb_per_s;
  double link_gb_per_s;
};
constexpr Chain chain_in_ll128{1.2, 6.9, 290};

// The specialised kernels, of one hop and of two, in LL and in LL128.
struct SpecialisedKernel {
  double us;
  double gb_per_s;
};
constexpr std::array<SpecialisedKernel, 2> specialised_in_ll{{{2.3, 140}, {3.7, 160}}};
constexpr std::array<SpecialisedKernel, 2> specialised_in_ll128{{{3.4, 280}, {5.3, 310}}};
constexpr SpecialisedKernel zero_copy_kernel{8, 340};
constexpr SpecialisedKernel in_bulk{10, 330};
// From a root, or to it, by as many thread blocks as are best.
constexpr SpecialisedKernel at_root_in_bulk{11, 350};
// What a thread block of theirs does at most.
constexpr double line_block_gb_per_s = 1.4;
constexpr double zero_copy_block_gb_per_s = 18;
constexpr double bulk_block_gb_per_s = 40;
// A reduce's times, by the bytes added at one rank: successive calls overlap.
constexpr SpecialisedKernel reduce_in_ll{2, 310};
constexpr std::array<SpecialisedKernel, 2> reduce_in_ll128{{{2.6, 430}, {8.2, 240}}};
constexpr double reduce_gb_per_s_at_most = 240;
// From one other rank alone; 2 H200: 16 MiB in 57.9 us, 64 MiB in 227.
constexpr double reduce_gb_per_s_of_two = 280;

class DeviceModel : public EngineModel {
 public:
  DeviceModel(const engine::gpu::Options& options, int thread_blocks, engine::gpu::Paths paths,
              std::string why_no_ll128)
      : options_(options),
        thread_blocks_(std::min(thread_blocks, engine::gpu::limits().max_thread_blocks)),
        paths_(std::move(paths)),
        why_no_ll128_(std::move(why_no_ll128)) {}

  std::string why_not(Protocol protocol) const override {
    return protocol == Protocol::ll128 ? why_no_ll128_ : std::string();
  }
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    const plan::Header header = entry.header(request);
    if (header.channels > engine::gpu::limits().max_channels ||
        static_cast<std::size_t>(header.max_step_count) * device::ll128_line_bytes >
            options_.slot_bytes)
      return false;
    // Ranks of one call may be in place and out of place. A call in place of a plan that cannot be
    // takes a private copy.
    const Blocks in_place = blocks_of(entry, request, true);
    return fits(blocks_of(entry, request, false), request) &&
           (!in_place.exist || fits(in_place, request));
  }
  std::string_view name() const override { return "gpu"; }
  std::span<const int> channels() const override {
    static constexpr std::array tried{1, 4, 8, 16, 32, 64};
    return tried;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions& options) const override {
    const auto protocol = static_cast<std::size_t>(request.protocol);
    const int ranks = request.placement.ranks();
    if (const auto specialised =
            how_specialised({&entry, nullptr, request, block_bytes, {.options = options}})) {
      // What is added up has come over links, to a root all of it.
      const double kilobytes = 1e-3 * std::max(cost.bytes_sent, cost.bytes_reduced);
      double speed = specialised->speed.gb_per_s;
      if (options.limits_sms())
        speed = std::min(speed, options.max_sms * specialised->block_gb_per_s);
      const double us = specialised->speed.us + kilobytes / speed;
      const double at_most = ranks == 2 ? reduce_gb_per_s_of_two : reduce_gb_per_s_at_most;
      return specialised->is_at_root ? std::max(us, kilobytes / at_most) : us;
    }
    const Blocks blocks = blocks_of(entry, request);
    const bool fans_in = cost.bytes_reduced > 0 && cost.messages > cost.steps;
    const bool takes_turns = !fans_in && cost.steps > 1 && blocks.sending > 1;
    const bool is_chain =
        has_root(entry.collective) && (cost.steps > 1 || ranks == 2) && blocks.sending == 1;
    double of_block = block_gb_per_s[protocol];
    double of_links = link_gb_per_s[protocol];
    double us_of_hop = hop_us + (takes_turns ? turn_us : 0) + (is_chain ? chain_us : 0);
    if (is_chain && entry.name == "ring" && request.protocol == Protocol::ll128 &&
        cost.bytes_reduced > 0) {
      us_of_hop = chain_in_ll128.hop_us;
      of_block = chain_in_ll128.block_gb_per_s;
      of_links = chain_in_ll128.link_gb_per_s;
    }
    const double of_blocks = of_block * blocks.sending * request.channels;
    if (fans_in) of_links = std::min(of_links, fan_in_gb_per_s);
    if (takes_turns) of_links = std::min(of_links, turns_gb_per_s);
    return launch_us + us_of_hop * static_cast<double>(cost.steps) +
           (fans_in ? combine_us * static_cast<double>(cost.messages - cost.steps) : 0) +
           block_us * blocks.all * request.channels + 1e-3 * cost.bytes_reduced / reduce_gb_per_s +
           1e-3 * cost.bytes_sent / std::min(of_blocks, of_links);
  }
  int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                    double block_bytes) const override {
    const int interpreted = blocks_of(entry, request).most * request.channels;
    const auto specialised = how_specialised({&entry, nullptr, request, block_bytes});
    // A call that may not have as many is interpreted.
    return specialised ? std::min(interpreted, specialised->least_blocks) : interpreted;
  }

  int sending_blocks(const algorithm::Entry& entry,
                     const algorithm::Request& request) const override {
    return blocks_of(entry, request).sending * request.channels;
  }

  trace::ChosenPath path(const PlanToRun& plan) const override {
    if (const auto specialised = how_specialised(plan))
      return specialised->overwrites ? engine::gpu::ll128_fallback(specialised->all_blocks)
                                     : specialised->path;
    const int blocks = plan.registered != nullptr
                           ? plan.registered->thread_blocks
                           : blocks_of(*plan.entry, plan.request).all * plan.request.channels;
    return engine::gpu::interpreter_path(blocks, plan.request.protocol, options_);
  }
  std::string note(const PlanToRun& plan) const override {
    const auto specialised = how_specialised(plan);
    if (!specialised) return "why: no specialised kernel carries it";
    if (specialised->path.variant == trace::Path::ll_all_pairs)
      return "why: it carries this plan while a message fits a slot";
    if (specialised->overwrites)
      return str("why: in place, what arrives by ", trace::name(specialised->path.variant),
                 " might overwrite what is not yet read");
    return str("why: ", describe(specialised->row), ", here ", format_bytes(specialised->longest));
  }

  // For calls of one hop and of two.
  int overlap_thread_blocks(Collective collective, int ranks, double block_bytes) const override {
    const double longest = collective == Collective::all_reduce ? block_bytes / ranks : block_bytes;
    const engine::gpu::PathChoice chosen =
        paths_.find({.collective = collective,
                     .ranks = ranks,
                     .hops = collective == Collective::all_reduce ? 2 : 1,
                     .longest = static_cast<std::uint64_t>(longest),
                     .options = {.compute_overlap = true}});
    // Rows for calls with that hint; what others choose, calls choose without it.
    return chosen.row != nullptr && chosen.row->overlaps == 1 ? chosen.thread_blocks : 0;
  }

 private:
  // Thread blocks of one channel: of rank 0, those of them that send, and of the rank that has
  // most, by which ranks choose alike.
  struct Blocks {
    bool exist = false;
    int all = 0;
    int sending = 0;
    int most = 0;
  };
  struct SpecialisedCall {
    SpecialisedKernel speed;
    int least_blocks;
    bool is_at_root = false;  // the sum of a reduce, or what becomes of it
    double block_gb_per_s = line_block_gb_per_s;
    trace::ChosenPath path;
    const engine::gpu::PathRow* row = nullptr;
    std::uint64_t longest = 0;
    // In place, its data must not be stored directly (plan::RankExchange::overwrites_in_place): its
    // launch takes so many thread blocks in LL128.
    bool overwrites = false;
    int all_blocks = 0;
  };
  std::string describe(const engine::gpu::PathRow* row) const {
    if (row == nullptr)
      return str("no row of sm_", paths_.architecture(), " is for messages of this size");
    const std::string to = row->max_bytes == UINT64_MAX ? std::string(" and more")
                                                        : str(" to ", format_bytes(row->max_bytes));
    return str(row->origin, ", sm_", row->architecture, ", messages of ",
               format_bytes(row->min_bytes), to);
  }
  // Nothing: it is interpreted.
  std::optional<SpecialisedCall> how_specialised(const PlanToRun& plan) const {
    const algorithm::Request& request = plan.request;
    const int ranks = request.placement.ranks();
    const plan::Exchange* exchange = nullptr;
    if (plan.registered != nullptr)
      exchange = plan.registered->exchange.get();
    else if (request.channels == 1)
      exchange = exchanges_.of(*plan.entry, ranks);
    if (exchange == nullptr) return std::nullopt;
    const double message_bytes = longest_message(plan, *exchange);
    const auto longest = static_cast<std::uint64_t>(message_bytes);
    const bool is_reduce = request.collective == Collective::reduce;
    if (request.protocol == Protocol::ll128) return in_ll128(plan, *exchange, longest);
    if (request.protocol != Protocol::ll) return std::nullopt;
    const auto kind = engine::gpu::ll_kind(*exchange);
    if (!kind || message_bytes > static_cast<double>(device::ll_max_bytes(*kind, ranks)))
      return std::nullopt;
    return SpecialisedCall{
        .speed = is_reduce
                     ? reduce_in_ll
                     : specialised_in_ll[static_cast<std::size_t>(device::ll_hops(*kind) - 1)],
        .least_blocks = engine::gpu::ll_least_blocks(*kind, longest, ranks),
        .is_at_root = is_reduce,
        .path = engine::gpu::ll_path(*kind, longest, ranks, plan.call.options),
        .longest = longest};
  }
  // In bytes: where the type is known as the kernel divides blocks, else in proportion.
  static double longest_message(const PlanToRun& plan, const plan::Exchange& exchange) {
    const std::int64_t chunks = exchange.longest_message();
    if (!plan.call.type || exchange.chunks_per_block == 1)
      return plan.block_bytes * static_cast<double>(chunks) / exchange.chunks_per_block;
    const auto size = static_cast<std::int64_t>(size_bytes(*plan.call.type));
    const std::int64_t count = static_cast<std::int64_t>(plan.block_bytes) / size;
    const auto layout = plan::ChunkLayout::of(count, exchange.chunks_per_block, size);
    const std::int64_t whole_blocks = chunks / exchange.chunks_per_block;
    const std::int64_t elements =
        whole_blocks * count + layout.begin(chunks % exchange.chunks_per_block);
    return static_cast<double>(elements * size);
  }
  engine::gpu::PathChoice row_for(const PlanToRun& plan, int hops, std::uint64_t longest) const {
    const Collective collective = plan.request.collective;
    if (is_reduction(collective) && plan.call.operation == ReduceOperation::pre_multiplied_sum)
      return {};
    return paths_.find({.collective = collective,
                        .ranks = plan.request.placement.ranks(),
                        .hops = hops,
                        .longest = longest,
                        .options = plan.call.options});
  }
  std::optional<SpecialisedCall> in_ll128(const PlanToRun& plan, const plan::Exchange& exchange,
                                          std::uint64_t longest) const {
    const algorithm::Request& request = plan.request;
    const int hops = engine::gpu::ll128_hops(exchange);
    if (hops == 0) return std::nullopt;
    const int ranks = request.placement.ranks();
    const CallOptions& options = plan.call.options;
    const engine::gpu::PathChoice chosen = row_for(plan, hops, longest);
    const bool is_reduce = request.collective == Collective::reduce;
    SpecialisedCall out{
        .speed = (is_reduce ? reduce_in_ll128
                            : specialised_in_ll128)[static_cast<std::size_t>(hops - 1)],
        .least_blocks = 1,
        .is_at_root = is_reduce,
        .path = engine::gpu::ll128_path(chosen, static_cast<std::int64_t>(longest), ranks,
                                        is_reduction(request.collective), options),
        .row = chosen.row,
        .longest = longest};
    if (chosen.path != trace::Path::ll128_all_pairs) {
      out.overwrites =
          request.in_place &&
          std::ranges::any_of(exchange.ranks, &plan::RankExchange::overwrites_in_place);
      out.all_blocks = chosen.path == trace::Path::zero_copy
                           ? out.path.thread_blocks
                           : options.at_most(device::ll128_max_blocks);
    }
    if (chosen.path == trace::Path::zero_copy) {
      out.speed = zero_copy_kernel;
      out.is_at_root = false;
      out.block_gb_per_s = zero_copy_block_gb_per_s;
    } else if (chosen.path == trace::Path::tma_bulk) {
      out.speed = !options.limits_sms() && has_root(request.collective) ? at_root_in_bulk : in_bulk;
      out.is_at_root = false;
      out.block_gb_per_s = bulk_block_gb_per_s;
    }
    return out;
  }
  static Blocks count_blocks(const algorithm::Entry& entry, const algorithm::Request& request) {
    Blocks out;
    const int ranks =
        entry.symmetry(request) == algorithm::Symmetry::rotation ? 1 : request.placement.ranks();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto program = algorithm::make_program(entry, request, rank);
      if (!program.ok()) return {};
      out.most = std::max(out.most, static_cast<int>(program->thread_blocks.size()));
      if (rank > 0) continue;
      out.all = out.most;
      for (const plan::ThreadBlock& block : program->thread_blocks)
        out.sending += block.send_peer >= 0 ? 1 : 0;
      out.sending = std::max(out.sending, 1);
    }
    out.exist = true;
    return out;
  }
  Blocks blocks_of(const algorithm::Entry& entry, const algorithm::Request& request) const {
    return blocks_of(entry, request, request.in_place);
  }
  Blocks blocks_of(const algorithm::Entry& entry, const algorithm::Request& request,
                   bool in_place) const {
    const std::lock_guard lock(mutex_);
    auto [found, is_new] =
        blocks_.try_emplace({&entry, request.placement.ranks(), request.root, in_place});
    if (is_new) {
      algorithm::Request of_one = request;
      of_one.channels = 1;
      of_one.in_place = in_place;
      found->second = count_blocks(entry, of_one);
    }
    return found->second;
  }
  bool fits(const Blocks& blocks, const algorithm::Request& request) const {
    return blocks.exist && blocks.most * request.channels <= thread_blocks_;
  }

  engine::gpu::Options options_;
  int thread_blocks_;
  engine::gpu::Paths paths_;
  std::string why_no_ll128_;
  Exchanges exchanges_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<const algorithm::Entry*, int, int, bool>, Blocks> blocks_;
};

}  // namespace

std::shared_ptr<const EngineModel> device_model(const engine::gpu::Options& options,
                                                int thread_blocks, engine::gpu::Paths paths,
                                                std::string why_no_ll128) {
  return std::make_shared<DeviceModel>(options, thread_blocks, std::move(paths),
                                       std::move(why_no_ll128));
}

}  // namespace unisono::comm
