// The host engine's Execution: a rank's thread blocks polled in turn.
#pragma once

#include <memory>

#include "engine/host/short_run.h"
#include "engine/host/thread_block.h"

namespace unisono::engine {

class HostExecution : public Execution {
 public:
  HostExecution(plan::Header header, plan::RankProgram program, Resources& resources,
                const transport::FifoOptions& options, const Tiling& tiling,
                std::span<const int> partners);

  Status start(const Arguments& arguments) override;
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  Waiting waiting() const override;
  std::vector<Waiting> waits() const override;
  bool awaits(int peer) const override;
  bool awaits_event() const override;
  bool awaits_memory() const override;
  std::int64_t reducing_ns() const override { return call_.arithmetic.meter().total_ns(); }
  trace::ChosenPath path(const Arguments&) const override {
    return {.slots = slots_, .chunk_bytes = static_cast<std::uint32_t>(slot_payload_bytes_)};
  }
  std::size_t memory_bytes() const override;

 private:
  Status check(const Arguments& arguments) const;
  bool is_like_last(const Arguments& arguments) const;
  Result<void*> scratch(const Arguments& arguments);
  Status start_like_last(const Arguments& arguments);
  Status start_blocks();
  bool runs_short() const { return short_run_.is_laid_out(); }
  Result<bool> poll_short();
  Result<bool> poll_blocks();
  Result<bool> blocks_finished();
  void complete();
  std::int64_t tile_elements(const Arguments& arguments) const;

  plan::Header header_;
  plan::RankProgram program_;
  OneSided one_sided_;
  CallState call_;
  ShortRun short_run_;  // runs calls like the last, if it could be laid out
  Arguments arguments_;
  int slots_;
  std::size_t slot_payload_bytes_;
  Tiling tiling_;
  bool has_run_ = false;
  int repeats_ = 0;     // calls of the same shape, one after another
  int idle_polls_ = 0;  // of short runs
  bool running_ = false;
  bool progressed_ = false;
};

}  // namespace unisono::engine
