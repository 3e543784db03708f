// Messages that go directly to their destination in the receiver's output, where nothing is mapped
// and the transport reaches exposed memory.
//
// The receiver's word decides, message by message: it exposes its output when its call begins and
// says where each message belongs. A sender that has it puts there; one that is earlier fills the
// slot as ever. Slots, credits and numbers are the same for both.
#include "base/try.h"
#include "engine/host/thread_block.h"

namespace unisono::engine {

bool CallState::exchanges_addresses() const {
  return memory.is_uniform() && !one_sided->has_partners() &&
         memory.most_tile_bytes() >= least_direct_bytes;
}

const std::vector<DirectMessages>& CallState::direct() {
  if (!knows_direct_) direct_ = direct_messages(*header, *program);
  knows_direct_ = true;
  return direct_;
}

// Before the first message of the call, which there is: its number tells the sender which call it
// is. Of two calls without one, the second would have the first one's number.
Status ThreadBlockRun::expose_output(CallState& call) {
  is_exposed_ = true;
  if (!recv_->can_expose() || !call.exchanges_addresses() || call.direct().empty()) return {};
  const auto& destinations = call.direct()[static_cast<std::size_t>(index_)].destinations;
  if (destinations.empty()) return {};
  const int blocks = plan::output_blocks_of(*call.header, call.program->rank);
  return recv_->expose(call.memory.base(plan::Buffer::output), call.memory.uniform_bytes(blocks),
                       destinations);
}

// The chunks that the message of the current step fills in the receiver's output, as it told; none
// where it did not.
const transport::DestinationList* ThreadBlockRun::destinations(CallState& call) {
  const transport::DestinationList* list = send_->destinations();
  const bool is_of_call = list != nullptr && list->first == first_sent_;
  return is_of_call && call.exchanges_addresses() && !call.direct().empty() ? list : nullptr;
}

Result<bool> ThreadBlockRun::send_directly(CallState& call, const std::vector<Extent>& extents) {
  const transport::DestinationList* list = destinations(call);
  if (list == nullptr) return false;
  const std::int32_t number = call.direct()[static_cast<std::size_t>(index_)]
                                  .sent[static_cast<std::size_t>(cursor_.number())];
  if (number < 0 || static_cast<std::uint32_t>(number) >= list->count) return false;
  const std::int64_t chunk = list->chunks[static_cast<std::size_t>(number)];
  const int count = cursor_.step()->count;
  const std::int64_t chunks =
      std::int64_t{plan::output_blocks_of(*call.header, block_->send_peer)} *
      call.header->chunks_per_block;
  if (chunk < 0 || chunk > chunks - count) return false;

  auto* const base = reinterpret_cast<std::byte*>(list->memory.address);
  CallMemory there = call.memory;
  Arguments theirs;
  theirs.output = base;
  there.rebase(theirs, nullptr);
  if (there.extents(plan::Buffer::output, chunk, count, tile_, there_) != bytes_) return false;
  pieces_.clear();
  offsets_.clear();
  zip(extents, there_, [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t) {
    pieces_.push_back({from, bytes});
    offsets_.push_back(static_cast<std::size_t>(to - base));
  });
  if (!send_->sends_directly(bytes_, pieces_.size())) return false;
  offer(extents);
  UNISONO_TRY(send_->send_directly(pieces_, offsets_));
  return true;
}

}  // namespace unisono::engine
