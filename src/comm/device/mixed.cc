// Calls whose plan has phases (plan/phases.h): kernels inside nodes, and between nodes the host's
// engine on host memory, to which only those chunks go that are sent.

#include "base/try.h"
#include "comm/device/staged.h"
#include "engine/gpu/execution.h"
#include "plan/chunk_layout.h"

namespace unisono::comm {
namespace {

// The connections of the host's engine, with scratch memory in the call's area.
class ScratchInArea final : public engine::Resources {
 public:
  explicit ScratchInArea(engine::Resources& others) : others_(others) {}
  void set(std::byte* scratch) { scratch_ = scratch; }

  Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) override {
    return others_.send_fifo(peer, channel, protocol);
  }
  Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) override {
    return others_.recv_fifo(peer, channel, protocol);
  }
  Result<transport::Connection*> connection(int peer, int channel) override {
    return others_.connection(peer, channel);
  }
  Status progress() override { return others_.progress(); }
  Result<void*> scratch(std::size_t) override { return scratch_; }
  bool is_time_real() const override { return others_.is_time_real(); }

 private:
  engine::Resources& others_;
  std::byte* scratch_ = nullptr;
};

}  // namespace

class Staging::Mixed final : public Staged {
 public:
  static Result<std::unique_ptr<engine::Execution>> make(Staging& staging,
                                                         const plan::Header& header,
                                                         const plan::Phases& phases,
                                                         HostPath& host) {
    std::unique_ptr<Mixed> made(new Mixed(staging, header, phases, host.connections()));
    UNISONO_ASSIGN(made->on_host_, host.make_execution({.header = header,
                                                        .program = phases.between,
                                                        .in_place = header.in_place,
                                                        .exchange = {}},
                                                       made->resources_));
    const auto make_kernels = [&](const plan::RankProgram& program) {
      return engine::gpu::make_execution(header, program, nullptr, staging.device_);
    };
    if (!phases.before.thread_blocks.empty()) {
      UNISONO_ASSIGN(auto before, make_kernels(phases.before));
      made->run_before(std::move(before));
    }
    // An average of integers is divided at the end, on all ranks by the same kernel.
    if (!phases.after.thread_blocks.empty() || is_reduction(header.collective)) {
      UNISONO_ASSIGN(auto after, make_kernels(phases.after));
      made->run_after(std::move(after));
    }
    return std::unique_ptr<engine::Execution>(std::move(made));
  }

 private:
  Mixed(Staging& staging, const plan::Header& header, const plan::Phases& phases,
        engine::Resources& connections)
      : Staged(staging, nullptr),
        resources_(connections),
        chunks_per_block_(header.chunks_per_block),
        input_blocks_(plan::input_blocks_of(header, phases.between.rank)),
        output_blocks_(plan::output_blocks_of(header, phases.between.rank)),
        scratch_blocks_(phases.between.scratch_blocks),
        read_(plan::chunks_read(phases.between)),
        written_(plan::chunks_written(phases.between)) {
    variant_ = trace::Path::mixed;
  }

  // Where a buffer of the plan is.
  struct Twin {
    DeviceAddress on_device = 0;
    std::byte* on_host = nullptr;
  };

  Status lay_out() override {
    const Range input = Range::of(given_.input, input_blocks_ * given_.count, given_.type);
    const Range output = Range::of(given_.output, output_blocks_ * given_.count, given_.type);
    const Places places(input, output);
    const std::size_t scratch_at = aligned(places.bytes);
    const std::size_t scratch_bytes = static_cast<std::size_t>(scratch_blocks_) *
                                      static_cast<std::size_t>(given_.count) *
                                      size_bytes(given_.type);
    UNISONO_ASSIGN(area_, staging_.take(scratch_at + scratch_bytes));
    std::byte* const host = area_->memory.data();
    Twin twins[plan::buffer_count]{{input.begin, host + places.input},
                                   {output.begin, host + places.output},
                                   {0, host + scratch_at}};
    // What the kernels before and after ask for, too: no call of this communicator is between.
    if (scratch_bytes > 0) {
      UNISONO_ASSIGN(twins[2].on_device, staging_.device_.scratch(scratch_bytes));
    }
    resources_.set(twins[2].on_host);
    lay_out(read_, twins, there_);
    lay_out(written_, twins, back_);
    if (given_.input != nullptr) given_.input = twins[0].on_host;
    if (given_.output != nullptr) given_.output = twins[1].on_host;
    return {};
  }

  void lay_out(const std::vector<plan::ChunkRange>& ranges, const Twin (&twins)[plan::buffer_count],
               std::vector<Copy>& copies) const {
    const auto element_bytes = static_cast<std::int64_t>(size_bytes(given_.type));
    const auto layout = plan::ChunkLayout::of(given_.count, chunks_per_block_, element_bytes);
    const auto begin_of = [&](std::int64_t chunk) {
      const std::int64_t block = chunk / chunks_per_block_;
      return static_cast<std::size_t>(
          (block * given_.count + layout.begin(chunk % chunks_per_block_)) * element_bytes);
    };
    copies.clear();
    for (const plan::ChunkRange& range : ranges) {
      const std::size_t begin = begin_of(range.first);
      const std::size_t end = begin_of(range.first + range.count);
      const Twin& twin = twins[static_cast<std::size_t>(range.buffer)];
      copies.push_back({twin.on_device + begin, twin.on_host + begin, end - begin});
    }
  }

  ScratchInArea resources_;
  std::int64_t chunks_per_block_;
  std::int64_t input_blocks_;
  std::int64_t output_blocks_;
  std::int64_t scratch_blocks_;
  std::vector<plan::ChunkRange> read_;
  std::vector<plan::ChunkRange> written_;
};

Result<std::unique_ptr<engine::Execution>> Staging::mix(const plan::Header& header,
                                                        const plan::Phases& phases,
                                                        HostPath& host) {
  return Mixed::make(*this, header, phases, host);
}

}  // namespace unisono::comm
