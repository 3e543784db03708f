#include "gpu/message_groups.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "base/try.h"
#include "engine/gpu/messages.h"

namespace unisono::test {
namespace {

constexpr std::byte untouched{0xa5};
constexpr std::size_t most_between = 40;  // bytes between what two messages bring

}  // namespace

MessageGroups::MessageGroups(GpuCluster& cluster, std::mt19937_64& random, std::size_t room)
    : cluster_(cluster),
      random_(random),
      room_(room / 8 * 8),
      sides_(static_cast<std::size_t>(cluster.ranks())) {
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    Side& side = sides_[static_cast<std::size_t>(rank)];
    const auto device = cluster.engine(rank).shared_device();
    side.sends = sys::cuda::Memory::allocate(device, room_).value();
    side.receives = sys::cuda::Memory::allocate(device, room_).value();
    side.sent.resize(room_);
  }
}

void MessageGroups::lay_out(const Shape& shape) {
  pieces_.clear();
  for (Side& side : sides_) side.group.clear();
  std::vector<std::size_t> ends(sides_.size());
  for (int message = 0; message < shape.messages; ++message)
    for (std::size_t from = 0; from < sides_.size(); ++from)
      for (std::size_t to = 0; to < sides_.size(); ++to) {
        if (from == to) continue;
        const std::size_t bytes = shape.bytes_of(message);
        const std::size_t at = ends[to] + random_() % most_between;
        ends[to] = at + bytes;
        const Piece piece{from, to, random_() % (room_ - bytes), at, bytes};
        pieces_.push_back(piece);
        sides_[from].group.push_back(
            {.is_send = true,
             .send_data = reinterpret_cast<void*>(sides_[from].sends.address() + piece.source),
             .count = static_cast<std::int64_t>(bytes),
             .peer = static_cast<int>(to)});
        sides_[to].group.push_back(
            {.is_send = false,
             .recv_data = reinterpret_cast<void*>(sides_[to].receives.address() + at),
             .count = static_cast<std::int64_t>(bytes),
             .peer = static_cast<int>(from)});
      }
}

Status MessageGroups::fill() {
  for (std::size_t rank = 0; rank < sides_.size(); ++rank) {
    Side& side = sides_[rank];
    for (std::size_t at = 0; at < room_; at += 8) {
      const std::uint64_t word = random_();
      std::memcpy(side.sent.data() + at, &word, sizeof word);
    }
    side.expected.assign(room_, untouched);
    const sys::cuda::Device& device = cluster_.engine(static_cast<int>(rank)).device();
    UNISONO_TRY(device.upload(side.sends.address(), side.sent.data(), room_));
    UNISONO_TRY(device.upload(side.receives.address(), side.expected.data(), room_));
  }
  for (const Piece& piece : pieces_)
    std::memcpy(sides_[piece.to].expected.data() + piece.destination,
                sides_[piece.from].sent.data() + piece.source, piece.bytes);
  return {};
}

std::string MessageGroups::compare() {
  std::vector<std::byte> got(room_);
  for (std::size_t rank = 0; rank < sides_.size(); ++rank) {
    const Side& side = sides_[rank];
    const Status copied = cluster_.engine(static_cast<int>(rank))
                              .device()
                              .copy(reinterpret_cast<sys::cuda::DeviceAddress>(got.data()),
                                    side.receives.address(), room_);
    if (!copied.ok()) return copied.error().describe();
    const auto wrong = std::ranges::mismatch(got, side.expected).in1 - got.begin();
    if (wrong < static_cast<std::ptrdiff_t>(room_))
      return str("rank ", rank, " has a wrong byte ", wrong, " of what it received");
  }
  return {};
}

std::string MessageGroups::run(const Shape& shape, int calls, bool is_graph) {
  lay_out(shape);
  GpuCluster::Executions executions;
  std::vector<engine::Arguments> arguments(sides_.size());
  for (std::size_t rank = 0; rank < sides_.size(); ++rank) {
    const int r = static_cast<int>(rank);
    auto made = engine::gpu::make_messages(sides_[rank].group, r, cluster_.ranks(), shape.options,
                                           cluster_.resources(r));
    if (!made.ok()) return made.error().describe();
    executions.push_back(std::move(made).value());
    arguments[rank].options.stream = cluster_.stream(r).handle();
    arguments[rank].options.timeout = std::chrono::seconds(120);
  }
  std::vector<sys::cuda::GraphExecHandle*> graphs;
  // The first call makes the connections, which a capture cannot.
  for (int call = 0; call < calls + (is_graph ? 1 : 0); ++call) {
    Status status = fill();
    if (status.ok() && is_graph && call == 1) {
      auto captured = cluster_.capture(executions, arguments);
      if (!captured.ok()) return captured.error().describe();
      graphs = std::move(captured).value();
    }
    if (status.ok())
      status = graphs.empty() ? cluster_.launch(executions, arguments, cluster_.all_ranks())
                              : cluster_.launch_graphs(graphs);
    if (status.ok()) status = cluster_.synchronize();
    if (!status.ok()) return status.error().describe();
    if (const std::string wrong = compare(); !wrong.empty()) return str("call ", call, ": ", wrong);
  }
  cluster_.destroy_graphs(graphs);
  return {};
}

}  // namespace unisono::test
