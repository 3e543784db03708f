// Plans that have kernels of their own: the same data, and the same sums in the same order, as the
// interpreted plan gives, without steps. In protocol LL: engine/gpu/ll_all_pairs.h; in LL128:
// engine/gpu/ll128_all_pairs.h. A plan is matched by what it exchanges (plan/exchange.h), not
// by its name; each kernel declares what it carries.
#pragma once

#include <unisono/result.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/gpu/execution.h"
#include "plan/chunk_layout.h"
#include "plan/exchange.h"

namespace unisono::engine::gpu {

class SpecialisedKernel {
 public:
  virtual ~SpecialisedKernel() = default;
  // Whether it takes a call; the same on all ranks. Others are interpreted.
  virtual bool serves(const Arguments& arguments) const = 0;
  // Whether all is there; false, and `waiting` says for whom, while connections are being made.
  Result<bool> connect(Resources& resources, const Arguments& arguments, Waiting& waiting);
  // How it carries a call that it serves; the arguments of the others have it as their path.
  virtual trace::ChosenPath path(const Engine& engine, const Arguments& arguments) const = 0;
  // `is_repeated`: the call before was like this one, and was launched.
  virtual Status launch(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                        const device::Arithmetic& arithmetic, const device::Stamp& stamp,
                        bool is_repeated) = 0;

 protected:
  // A part of a buffer, in chunks: of a call's count it becomes bytes.
  class Span {
   public:
    Span() = default;
    Span(const plan::Chunks& chunks, int chunks_per_block);
    bool empty() const { return begin_block_ == end_block_ && begin_chunk_ == end_chunk_; }
    bool operator==(const Span&) const = default;

   private:
    friend class SpecialisedKernel;
    std::int64_t begin_block_ = 0;
    std::int64_t begin_chunk_ = 0;
    std::int64_t end_block_ = 0;
    std::int64_t end_chunk_ = 0;
  };
  struct Extent {
    std::int64_t offset;  // in bytes
    std::int64_t bytes;
  };
  // The extents of the spans of a call.
  class Extents {
   public:
    Extents(const Arguments& arguments, int chunks_per_block)
        : size_(static_cast<std::int64_t>(size_bytes(arguments.type))),
          // Small calls need no division where blocks are whole.
          layout_(chunks_per_block == 1
                      ? plan::ChunkLayout{arguments.count, arguments.count}
                      : plan::ChunkLayout::of(arguments.count, chunks_per_block, size_)) {}
    Extent operator()(const Span& span) const {
      const std::int64_t begin = at(span.begin_block_, span.begin_chunk_);
      return {begin, at(span.end_block_, span.end_chunk_) - begin};
    }

   private:
    std::int64_t at(std::int64_t block, std::int64_t chunk) const {
      return (block * layout_.count + layout_.begin(chunk)) * size_;
    }
    std::int64_t size_;
    plan::ChunkLayout layout_;
  };

  SpecialisedKernel(const plan::Header& header, int rank,
                    std::shared_ptr<const plan::Exchange> exchange);
  const plan::RankExchange& own_part() const { return exchange_->part(rank_); }
  Extents extents(const Arguments& arguments) const {
    return {arguments, exchange_->chunks_per_block};
  }
  const Span& gives(int peer) const { return gives_[static_cast<std::size_t>(peer)]; }
  const Span& takes(int peer) const { return takes_[static_cast<std::size_t>(peer)]; }
  // The length of the longest message that any rank sends in a hop.
  std::int64_t longest_bytes(const Arguments& arguments) const {
    return extents(arguments)(longest_).bytes;
  }
  bool is_one_way() const { return is_one_way_; }
  // What goes to each rank and where what comes from it is put, of a launch whose peers begin with
  // rank `first`.
  template <class Launch>
  void set_peers(const Arguments& arguments, int first, Launch& launch) const {
    const auto input = sys::cuda::address_of(arguments.input);
    const auto output = sys::cuda::address_of(arguments.output);
    const Extents extents = this->extents(arguments);
    auto* const own = &launch.peers[rank_ < first ? rank_ - first + ranks_ : rank_ - first];
    decltype(&launch.peers[0]) some = nullptr;  // that data go to
    launch.sources_differ = 0;
    int peer = first;
    for (int i = 0; i < ranks_; ++i, peer = peer + 1 == ranks_ ? 0 : peer + 1) {
      auto& to = launch.peers[i];
      to.source = 0;
      to.destination = 0;
      to.bytes = 0;
      if (!takes(peer).empty()) {
        const Extent extent = extents(takes(peer));
        to.destination = output + static_cast<std::uint64_t>(extent.offset);
        to.bytes = extent.bytes;
      }
      if (gives(peer).empty()) continue;
      const Extent extent = extents(gives(peer));
      to.source = input + static_cast<std::uint64_t>(extent.offset);
      to.bytes = extent.bytes;
      if (some != nullptr && some->source != to.source) launch.sources_differ = 1;
      some = &to;
    }
    // Senders load from there where all receivers get the same data.
    if (own->source != 0 || some == nullptr) return;
    own->source = some->source;
    if (own->bytes == 0) own->bytes = some->bytes;
  }
  // The connections that a call uses.
  virtual int channel(const Arguments& arguments) const = 0;
  virtual transport::Geometry geometry(int channel) const = 0;
  // By rank; null for the own one. Of the channel that was connected last.
  const std::vector<transport::Connection*>& links() const { return *connected_links_; }
  std::int64_t block_bytes(const Arguments& arguments) const {
    return arguments.count * static_cast<std::int64_t>(size_bytes(arguments.type));
  }

  Collective collective_;
  int ranks_;
  int rank_;
  Protocol protocol_;
  std::shared_ptr<const plan::Exchange> exchange_;

 private:
  std::vector<Span> gives_;
  std::vector<Span> takes_;
  Span longest_;
  bool is_one_way_;
  std::map<int, std::vector<transport::Connection*>> links_;
  int connected_channel_ = -1;
  const std::vector<transport::Connection*>* connected_links_ = nullptr;
};

// By the kernel that carries the plan's exchange; null where there is none, and for no exchange.
std::unique_ptr<SpecialisedKernel> make_specialised_kernel(
    const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange);

// What all of these kernels carry: 2 to 8 ranks, blocks of equal size, and something that is sent.
bool is_carried(const plan::Exchange& exchange);
// Whether each sum is of all ranks' data, in the order of their numbers, from some rank on; and
// from the own one on, which is no matter where there are two.
bool adds_all_in_turn(const plan::Exchange& exchange);
bool adds_own_first(const plan::Exchange& exchange);

// What a kernel has to do with the data of a call: `all` are its addresses and sizes, or'ed, of
// `grain` bytes where they are whole. `adds`: it sums.
device::DataKind data_kind(std::uint64_t all, std::size_t grain, int ranks, bool adds,
                           const device::Arithmetic& arithmetic);

// Channels of connections beyond those of plans: the first of those in LL and of those in LL128.
inline constexpr int ll_channel = 1 << 12;
inline constexpr int ll128_channel = ll_channel + 8;

}  // namespace unisono::engine::gpu
