// What plans and groups of messages on the copy engines have in common: their links, what the hosts
// agree on before anything is put on the stream, and the stream.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/gpu/execution.h"
#include "engine/gpu/stream_queue.h"

namespace unisono::engine::gpu {

inline trace::ChosenPath copy_path(const CopyLinks::Options& options) {
  return {.variant = Path::copy_engine,
          .slots = options.slots,
          .chunk_bytes = static_cast<std::uint32_t>(options.slot_bytes)};
}

class OnCopyEngines : public Execution {
 public:
  explicit OnCopyEngines(Resources& resources) : resources_(resources) {}

  Status start(const Arguments& arguments) override;
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  trace::ChosenPath path(const Arguments&) const override {
    return copy_path(resources_.engine().options().copies);
  }
  Waiting waiting() const override { return waiting_; }

 protected:
  struct Wanted {
    int peer;
    int channel;
    CopyLink* link = nullptr;
  };
  // A message of a call that both ends make zero-copy if they can.
  struct Rendezvous {
    StreamQueue::ZeroCopy flags;  // link and parts; the rest when it is zero-copy
    bool sends = false;
    CopyRendezvous decided;  // before, of a receive: as this end wants it
    std::uint64_t number = 0;
    bool is_over = false;
  };
  // Gives meet() all messages of the call that are large enough, both ends in the same order.
  virtual void arrange() = 0;
  // Returns which it is. `wanted`: where the sender reaches the place of a receive; 0: it does not.
  int meet(CopyLink& link, bool sends, int parts, std::uint32_t tag,
           sys::cuda::DeviceAddress wanted);
  // As Resources does, for what is to be arranged.
  void find_peer_mappings(sys::cuda::DeviceAddress data, std::size_t bytes,
                          std::span<sys::cuda::DeviceAddress> by_rank);
  // The message if it is zero-copy, else null; -1: none.
  const StreamQueue::ZeroCopy* zero_copy(int which) const;
  sys::cuda::DeviceAddress destination(int which) const {
    return rendezvous_[static_cast<std::size_t>(which)].decided.at;
  }
  // Whether all of the call is on the stream; if not, it goes on from there once there is room.
  virtual Result<bool> enqueue(StreamQueue& queue) = 0;
  CopyLink& link(std::size_t which) const { return *wanted_[which].link; }
  CopyLinks& links() const { return resources_.engine().copy_links(); }

  Resources& resources_;
  std::vector<Wanted> wanted_;
  Arguments arguments_;

 private:
  Result<bool> connect();
  Result<bool> is_capturing() const;
  Result<bool> agree();
  Status agree(Rendezvous& rendezvous);
  bool has_room() const;
  Status open_queue();
  Status begin(StreamQueue& queue);

  std::vector<Rendezvous> rendezvous_;
  bool is_arranged_ = false;
  bool is_captured_ = false;
  std::int64_t arranged_ns_ = 0;
  std::optional<StreamQueue> queue_;  // from a call's first portion to its last
  Waiting waiting_;
  bool progressed_ = false;
};

}  // namespace unisono::engine::gpu
