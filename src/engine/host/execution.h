// The host engine's Execution: a rank's thread blocks polled in turn.
#pragma once

#include <memory>

#include "engine/host/thread_block.h"

namespace unisono::engine {

class HostExecution : public Execution {
 public:
  HostExecution(plan::Header header, plan::RankProgram program, Resources& resources,
                std::size_t slot_payload_bytes, int tiles);

  Status start(const Arguments& arguments) override;
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  Waiting waiting() const override;
  std::size_t memory_bytes() const override;

 private:
  Status check(const Arguments& arguments) const;
  // Binds a call of another shape than the last; binds one of the same shape.
  void bind(const Arguments& arguments, void* scratch);
  void bind_like_last(const Arguments& arguments, void* scratch);
  Result<bool> finish();
  std::int64_t tile_elements(const Arguments& arguments) const;

  plan::Header header_;
  plan::RankProgram program_;
  CallState call_;
  Arguments arguments_;
  std::size_t slot_payload_bytes_;
  int tiles_;
  bool has_run_ = false;
  int repeats_ = 0;  // calls of the same shape, one after another
  bool running_ = false;
  bool progressed_ = false;
};

}  // namespace unisono::engine
