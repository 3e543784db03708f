// Sends and receives of GPUs on several hosts, which kernels exchange over ring links.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/str.h"
#include "engine/gpu/messages.h"
#include "gpu/device_copies.h"
#include "gpu/hosts.h"
#include "gpu/sums_in_graphs.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

class GpuRingMessages : public GpuHosts {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRingMessages, testing::Values(2, 3, 4));

std::function<void(int rank, InitOptions& options)> with_rings(int ranks) {
  return [place = apart(ranks)](int rank, InitOptions& options) {
    place(rank, options);
    options.settings = {{"UNISONO_GPU_RING_LINKS", "on"},
                        {"UNISONO_GPU_SLOTS", "2"},
                        {"UNISONO_GPU_SLOT_BYTES", "4096"}};
  };
}

// A group in which each rank sends to all, itself included, some messages that begin anywhere.
class Exchange {
 public:
  Exchange(Communicator& communicator, const TestStream& stream, std::uint64_t seed)
      : communicator_(communicator), stream_(stream), seed_(seed) {
    const auto& device = stream.shared_device();
    for (int peer = 0; peer < communicator.size(); ++peer)
      for (int message = 0; message < messages; ++message) {
        const std::size_t bytes = std::max(bytes_of(communicator.rank(), peer, message),
                                           bytes_of(peer, communicator.rank(), message));
        for (auto* side : {&sends_, &receives_})
          side->push_back(sys::cuda::Memory::allocate(device, bytes + misaligned).value());
      }
  }

  Status fill(int round) {
    for (int peer = 0; peer < communicator_.size(); ++peer)
      for (int message = 0; message < messages; ++message) {
        const std::size_t at = place_of(peer, message);
        const auto sent = data_of(communicator_.rank(), peer, message, round);
        if (Status status = stream_.device().upload(address(sends_[at]), sent.data(), sent.size());
            !status.ok())
          return status;
        const std::vector<std::byte> poison(bytes_of(peer, communicator_.rank(), message),
                                            std::byte{0xa5});
        if (Status status =
                stream_.device().upload(address(receives_[at]), poison.data(), poison.size());
            !status.ok())
          return status;
      }
    return {};
  }
  Status call(CallOptions options = {}) {
    options.stream = stream_.handle();
    std::vector<Message> group;
    for (int peer = 0; peer < communicator_.size(); ++peer)
      for (int message = 0; message < messages; ++message) {
        const std::size_t at = place_of(peer, message);
        group.push_back(
            {.is_send = true,
             .send_data = reinterpret_cast<void*>(address(sends_[at])),
             .count = static_cast<std::int64_t>(bytes_of(communicator_.rank(), peer, message)),
             .peer = peer});
        group.push_back(
            {.is_send = false,
             .recv_data = reinterpret_cast<void*>(address(receives_[at])),
             .count = static_cast<std::int64_t>(bytes_of(peer, communicator_.rank(), message)),
             .peer = peer});
      }
    auto work = communicator_.submit(group, options);
    if (!work.ok()) return Status(work.take_error());
    return work->wait();
  }
  std::string wrong(int round) {
    if (!stream_.synchronize().ok()) return "the stream failed";
    for (int peer = 0; peer < communicator_.size(); ++peer)
      for (int message = 0; message < messages; ++message) {
        const auto expected = data_of(peer, communicator_.rank(), message, round);
        std::vector<std::byte> got(expected.size());
        const Status copied =
            stream_.device().copy(reinterpret_cast<sys::cuda::DeviceAddress>(got.data()),
                                  address(receives_[place_of(peer, message)]), got.size());
        if (!copied.ok()) return copied.error().describe();
        const auto differs = std::ranges::mismatch(got, expected).in1;
        if (differs != got.end())
          return str("round ", round, ": message ", message, " from rank ", peer, " of ",
                     got.size(), " bytes differs at ", differs - got.begin());
      }
    return {};
  }

 private:
  static constexpr int messages = 3;
  static constexpr std::size_t misaligned = 5;

  // Alike on both ranks: nothing, less than a slot, and more than all slots.
  std::size_t bytes_of(int from, int to, int message) const {
    static constexpr std::size_t most[]{1, 4000, 70'000};
    std::mt19937_64 random(seed_ + static_cast<std::uint64_t>((from * 64 + to) * 8 + message));
    return random() % most[message] + (message == 2 ? 1 : 0);
  }
  std::vector<std::byte> data_of(int from, int to, int message, int round) const {
    std::mt19937 random(static_cast<std::mt19937::result_type>(
        seed_ + static_cast<std::uint64_t>(((from * 64 + to) * 8 + message) * 100 + round)));
    std::vector<std::byte> data(bytes_of(from, to, message));
    for (std::byte& one : data) one = static_cast<std::byte>(random());
    return data;
  }
  static std::size_t place_of(int peer, int message) {
    return static_cast<std::size_t>(peer * messages + message);
  }
  static sys::cuda::DeviceAddress address(const sys::cuda::Memory& memory) {
    return memory.address() + misaligned;
  }

  Communicator& communicator_;
  const TestStream& stream_;
  std::uint64_t seed_;
  std::vector<sys::cuda::Memory> sends_;
  std::vector<sys::cuda::Memory> receives_;
};

bool has_ring_of_messages(const Communicator& communicator) {
  const auto connections = communicator.memory().connections;
  return std::ranges::any_of(connections, [](const ConnectionMemory& one) {
    return one.transport == "ring" && one.channel >= engine::gpu::first_message_channel;
  });
}

std::string text_of(const Status& status) {
  return status.ok() ? std::string() : status.error().describe();
}

// Groups of messages, with collectives between, whose links are others.
TEST_P(GpuRingMessages, KernelsCarryGroups) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        for (int round = 0; round < 6; ++round) {
          Exchange exchange(communicator, stream, seed + static_cast<std::uint64_t>(round));
          if (std::string text = text_of(exchange.fill(round)); !text.empty()) return text;
          if (std::string text = text_of(exchange.call()); !text.empty()) return text;
          if (std::string wrong = exchange.wrong(round); !wrong.empty()) return wrong;
          if (!has_ring_of_messages(communicator)) return "no ring link of messages";
          const Problem problem{
              Collective::all_reduce, communicator.size(), 0, 40, ReduceOperation::sum, {}};
          std::string sums =
              run_checked(communicator, {problem, DataType::int32, false, {}, seed, on(stream)});
          if (!sums.empty()) return sums;
        }
        return {};
      },
      with_rings(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

TEST_P(GpuRingMessages, GraphsReplayOnNewData) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        Exchange exchange(communicator, stream, seed);
        Graph graph(stream, Graph::global);
        const Status captured = exchange.call();
        graph.end();
        if (!captured.ok()) return text_of(captured);
        for (int round = 0; round < 5; ++round) {
          if (std::string text = text_of(exchange.fill(round)); !text.empty()) return text;
          graph.launch();
          if (std::string wrong = exchange.wrong(round); !wrong.empty()) return wrong;
        }
        return text_of(communicator.failure());
      },
      with_rings(GetParam()));
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
}

// Another size than the receiver's is an error that names both, as inside a host.
TEST_P(GpuRingMessages, ThatDifferAreErrors) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const int last = communicator.size() - 1;
        const int rank = communicator.rank();
        if (rank != 0 && rank != last) return {};
        const TestStream stream = stream_of(communicator);
        const auto memory = sys::cuda::Memory::allocate(stream.shared_device(), 64).value();
        void* const data = reinterpret_cast<void*>(memory.address());
        const CallOptions options{.timeout = std::chrono::seconds(10), .stream = stream.handle()};
        const Status status = rank == 0 ? communicator.send(data, 4, DataType::int32, last, options)
                                        : communicator.recv(data, 3, DataType::int32, 0, options);
        static_cast<void>(status);
        static_cast<void>(stream.synchronize());
        const Status failure = communicator.failure();
        return failure.ok() ? "no failure" : failure.error().describe();
      },
      with_rings(GetParam()));
  const std::string& said = all.back().said;
  EXPECT_NE(said.find("rank 0"), std::string::npos) << said;
  EXPECT_EQ(said.find("no failure"), std::string::npos) << said;
}

// How many pieces a message has follows from its size alone: few, because each is the forwarder's.
TEST(RingMessages, AreCutIntoFewPieces) {
  const engine::gpu::Options options;
  for (const std::uint64_t bytes : {1ULL, 4096ULL, 1000ULL << 10})
    EXPECT_EQ(engine::gpu::ring_cut_of(bytes, 2, {}, options).channels, 1) << bytes;
  EXPECT_EQ(engine::gpu::ring_cut_of(1 << 20, 2, {}, options).channels, 2);
  EXPECT_EQ(engine::gpu::ring_cut_of(1 << 30, 2, {}, options).channels, 4);
  EXPECT_EQ(engine::gpu::ring_cut_of(1 << 30, 2, {.max_sms = 2}, options).channels, 1);
  for (const std::uint64_t bytes : {1ULL, 5000ULL, 1ULL << 30}) {
    const auto cut = engine::gpu::ring_cut_of(bytes, 3, {}, options);
    EXPECT_GT(cut.piece_bytes, 0U);
    EXPECT_LE(cut.piece_bytes, options.slot_bytes);
    EXPECT_EQ(cut.blocks, cut.channels);
  }
}

}  // namespace
}  // namespace unisono::test
