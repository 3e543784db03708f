// Plans that have kernels of their own: the same data, and the same sums in the same order, as the
// interpreted plan gives, without steps. In protocol LL: engine/gpu/direct.h; in LL128:
// engine/gpu/lines.h.
#pragma once

#include <unisono/result.h>

#include <map>
#include <memory>
#include <vector>

#include "algorithm/algorithm.h"
#include "engine/gpu/execution.h"
#include "plan/chunk_layout.h"

namespace unisono::engine::gpu {

class ByHand {
 public:
  virtual ~ByHand() = default;
  // Whether it takes a call; the same on all ranks. Others are interpreted.
  virtual bool serves(const Arguments& arguments) const = 0;
  // Whether all is there; false, and `waiting` says for whom, while connections are being made.
  Result<bool> connect(Resources& resources, const Arguments& arguments, Waiting& waiting);
  // Which of its kernels carries a call that it serves.
  virtual Path path(const Engine& engine, const Arguments& arguments) const = 0;
  virtual Status launch(Resources& resources, const Arguments& arguments,
                        const device::Arithmetic& arithmetic) const = 0;

 protected:
  ByHand(const plan::Header& header, int rank)
      : collective_(header.collective),
        ranks_(header.ranks),
        rank_(rank),
        root_(header.root),
        protocol_(header.protocol) {}
  // Before a call's channel is asked for and it is launched.
  virtual void prepare(const Engine&, const Arguments&) {}
  // Of the connections that a call goes by.
  virtual int channel(const Engine& engine, const Arguments& arguments) const = 0;
  virtual transport::Geometry geometry(int channel) const = 0;
  // By rank; null for the own one. Of a channel that is connected.
  const std::vector<transport::Connection*>& links(int channel) const { return links_.at(channel); }
  std::int64_t block_bytes(const Arguments& arguments) const {
    return arguments.count * static_cast<std::int64_t>(size_bytes(arguments.type));
  }
  plan::ChunkLayout segments(const Arguments& arguments, int count) const {
    return plan::ChunkLayout::of(arguments.count, count,
                                 static_cast<std::int64_t>(size_bytes(arguments.type)));
  }

  Collective collective_;
  int ranks_;
  int rank_;
  int root_;
  Protocol protocol_;

 private:
  std::map<int, std::vector<transport::Connection*>> links_;
};

// By the kernel that carries what `reference` names (carried.h); null where there is none.
std::unique_ptr<ByHand> make_by_hand(const plan::Header& header, int rank,
                                     const algorithm::Entry* reference);

// What a kernel has to do with the data of a call: `all` are its addresses and sizes, or'ed, of
// `grain` bytes where they are whole. `adds`: it sums.
device::DataKind data_kind(std::uint64_t all, std::size_t grain, int ranks, bool adds,
                           const device::Arithmetic& arithmetic);

// Channels of connections beyond those of plans: the first of those in LL and of those in LL128.
inline constexpr int direct_channel = 1 << 12;
inline constexpr int lines_channel = direct_channel + 8;

}  // namespace unisono::engine::gpu
