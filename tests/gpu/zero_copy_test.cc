// Users' memory of every kind, which other ranks reach once they were told: threads as ranks, and
// processes, also on one device. Memory is allocated and freed only while no kernel waits for a
// rank of the same device.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "gpu/runs.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"
#include "sys/cuda/share.h"

namespace unisono {
namespace {

using sys::cuda::DeviceAddress;
using test::CheckedCall;
using test::Problem;
using test::run_checked;
using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr std::size_t piece_bytes = std::size_t{2} << 20;

// Memory that was mapped piece by piece, as PyTorch's expandable segments are.
class Pieces {
 public:
  Pieces(std::shared_ptr<const sys::cuda::Device> device, int count, bool can_be_shared)
      : device_(std::move(device)), can_be_shared_(can_be_shared) {
    const sys::cuda::Current current(*device_);
    bytes_ = static_cast<std::size_t>(count) * piece_bytes;
    must(device_->driver().address_reserve(&address_, bytes_, 0, 0, 0));
    map();
  }
  ~Pieces() {
    const sys::cuda::Current current(*device_);
    unmap();
    device_->driver().address_free(address_, bytes_);
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  DeviceAddress address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  // Other memory at the same addresses.
  void replace() {
    const sys::cuda::Current current(*device_);
    unmap();
    map();
  }

 private:
  void map() {
    const sys::cuda::Driver& driver = device_->driver();
    const sys::cuda::AllocationProperties properties{.type = 1,
                                                     .handle_types = can_be_shared_ ? 1 : 0,
                                                     .location_type = 1,
                                                     .location = device_->ordinal(),
                                                     .windows_attributes = nullptr,
                                                     .flags = {}};
    for (std::size_t at = 0; at < bytes_; at += piece_bytes) {
      sys::cuda::AllocationHandle handle = 0;
      must(driver.allocation_create(&handle, piece_bytes, &properties, 0));
      must(driver.address_map(address_ + at, piece_bytes, 0, handle, 0));
      must(driver.allocation_release(handle));
    }
    const sys::cuda::AccessDescription access{
        .location_type = 1, .location = device_->ordinal(), .flags = 3};
    must(driver.address_allow(address_, bytes_, &access, 1));
  }
  void unmap() { must(device_->driver().address_unmap(address_, bytes_)); }
  void must(sys::cuda::DriverResult result) const {
    const Status status = device_->check(result, "preparing memory in pieces");
    if (!status.ok()) throw std::runtime_error(status.error().describe());
  }

  std::shared_ptr<const sys::cuda::Device> device_;
  bool can_be_shared_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
};

struct Area {
  DeviceAddress address;
  std::size_t bytes;
};

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank) % devices.size()];
}

// Makes calls somewhere in an area, elsewhere each time.
class Somewhere {
 public:
  Somewhere(const TestStream& stream, Area area, std::uint64_t seed)
      : stream_(stream), area_(area), random_(seed) {}
  void move_to(Area area) { area_ = area; }

  CheckedCall::Run runner() {
    return [this](Communicator& communicator, const Call& given,
                  std::span<const std::span<std::byte>> memories) {
      return run(communicator, given, memories);
    };
  }

 private:
  // Halves and quarters are apart: what is shared, what goes in, what comes out.
  DeviceAddress place(std::size_t which, std::size_t bytes) {
    const std::size_t room = area_.bytes / 4;
    if (bytes > room) throw std::runtime_error("the area is too small");
    const std::size_t grain = random_() % 3 == 0 ? 4 : 16;
    return area_.address + which * room + random_() % (room - bytes + 1) / grain * grain;
  }
  Status run(Communicator& communicator, const Call& given,
             std::span<const std::span<std::byte>> memories) {
    Call call = given;
    call.options.stream = stream_.handle();
    const sys::cuda::Device& device = stream_.device();
    std::vector<DeviceAddress> places;
    const auto translate = [](const void* data, std::span<std::byte> memory, DeviceAddress at) {
      return reinterpret_cast<void*>(
          at + static_cast<std::size_t>(static_cast<const std::byte*>(data) - memory.data()));
    };
    call.input = call.output = nullptr;
    for (std::size_t which = 0; which < memories.size(); ++which) {
      const auto memory = memories[which];
      places.push_back(place(which, memory.size()));
      if (memory.empty()) continue;
      UNISONO_TRY(device.upload(places.back(), memory.data(), memory.size()));
      const auto is_in = [&](const void* data) {
        const auto* byte = static_cast<const std::byte*>(data);
        return byte >= memory.data() && byte <= memory.data() + memory.size();
      };
      if (is_in(given.input)) call.input = translate(given.input, memory, places.back());
      if (is_in(given.output)) call.output = translate(given.output, memory, places.back());
    }
    UNISONO_TRY(communicator.run(call));
    UNISONO_TRY(stream_.synchronize());
    UNISONO_TRY(communicator.failure());
    for (std::size_t which = 0; which < memories.size(); ++which)
      UNISONO_TRY(device.copy(reinterpret_cast<DeviceAddress>(memories[which].data()),
                              places[which], memories[which].size()));
    return {};
  }

  const TestStream& stream_;
  Area area_;
  std::mt19937_64 random_;
};

struct Plan {
  Collective collective;
  const char* algorithm;
};
constexpr Plan plans[] = {{Collective::all_gather, "direct"},
                          {Collective::all_to_all, "direct"},
                          {Collective::broadcast, "ring"},
                          {Collective::all_to_all_v, "direct"},
                          {Collective::all_reduce, "two_shot"}};

// A round of calls with equal arguments on all ranks.
void call_all(Communicator& communicator, Somewhere& somewhere, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const Plan& plan : plans) {
    const auto count = static_cast<std::int64_t>(2000 + random() % 60'000);
    Problem problem{plan.collective, communicator.size(), 0, count, ReduceOperation::sum, {}};
    if (has_root(plan.collective))
      problem.root = static_cast<int>(random() % static_cast<unsigned>(problem.ranks));
    if (plan.collective == Collective::all_to_all_v) {
      problem.counts.assign(static_cast<std::size_t>(problem.ranks), {});
      for (auto& row : problem.counts)
        for (int i = 0; i < problem.ranks; ++i)
          row.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(count)));
      problem.count = 0;
    }
    const bool in_place = plan.collective == Collective::all_gather && random() % 2 == 0;
    const CallOptions options{
        .algorithm = plan.algorithm, .protocol = Protocol::simple, .channels = 2};
    const std::string wrong = run_checked(communicator, {problem, DataType::float32, in_place,
                                                         options, random(), somewhere.runner()});
    ASSERT_EQ(wrong, "") << name(plan.collective) << ", count " << count << ", rank "
                         << communicator.rank();
  }
}

// Until all memory in use was made known and mapped, or some rounds have passed.
void call_until_known(Communicator& communicator, Somewhere& somewhere, std::uint64_t seed) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    call_all(communicator, somewhere, seed + round);
    if (testing::Test::HasFatalFailure()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

const SettingValues messages_from_1_kib{{"UNISONO_GPU_ZERO_COPY_MIN_BYTES", "1KiB"}};

class GpuZeroCopy : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  static test::RanksOptions two_ranks() {
    return {.ranks = 2,
            .timeout = test::deadline_of_calls,
            .device = [](int rank) { return device_of(rank)->ordinal(); },
            .settings = messages_from_1_kib};
  }
};

constexpr std::size_t area_bytes = std::size_t{8} << 20;

// What a rank does, in a thread or in a process of its own: memory of the driver's plain call, the
// same freed and made anew, memory in pieces, and that with others at the same addresses.
void use_all_kinds_of_memory(Communicator& communicator) {
  const int rank = communicator.rank();
  const auto device = device_of(rank);
  const TestStream stream(device);
  const auto meet = [&] { ASSERT_TRUE(communicator.barrier().ok()); };
  Pieces pieces(device, 4, true);
  {
    auto plain = std::move(sys::cuda::Memory::allocate(device, area_bytes)).value();
    Somewhere somewhere(stream, {plain.address(), plain.bytes()}, 7);
    meet();
    call_until_known(communicator, somewhere, 100);
    EXPECT_GE(communicator.memory().registered_bytes, area_bytes);
    EXPECT_GE(communicator.memory().mapped_bytes, area_bytes);
    somewhere.move_to({pieces.address(), pieces.bytes()});
    call_until_known(communicator, somewhere, 200);
    EXPECT_GT(communicator.memory().mapped_bytes, area_bytes);
    meet();
    pieces.replace();
    meet();
    call_until_known(communicator, somewhere, 300);
    meet();
  }
  // The plain memory is gone, and other memory may lie there.
  auto again = std::move(sys::cuda::Memory::allocate(device, area_bytes)).value();
  meet();
  Somewhere somewhere(stream, {again.address(), again.bytes()}, 8);
  call_until_known(communicator, somewhere, 400);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  meet();
  // What is gone is unmapped.
  EXPECT_LE(communicator.memory().registered_bytes, area_bytes + pieces.bytes());
  EXPECT_LE(communicator.memory().mapped_bytes, area_bytes + pieces.bytes());
  EXPECT_GT(communicator.memory().mapped_bytes, 0U);
  meet();
  ASSERT_TRUE(communicator.destroy().ok());
}

TEST_F(GpuZeroCopy, EveryKindOfMemoryBetweenThreads) {
  run_ranks(two_ranks(), use_all_kinds_of_memory);
}

constexpr const char* rendezvous_variable = "GPU_ZERO_COPY_RENDEZVOUS";

void join_and_run(int rank, const std::string& rendezvous) {
  InitOptions init;
  init.rank = rank;
  init.world_size = 2;
  init.rendezvous = rendezvous;
  init.timeout = std::chrono::seconds(60);
  init.device = device_of(rank)->ordinal();
  init.settings = messages_from_1_kib;
  auto communicator = Communicator::init(init);
  ASSERT_TRUE(communicator.ok()) << communicator.error().describe();
  use_all_kinds_of_memory(*communicator);
}

TEST_F(GpuZeroCopy, EveryKindOfMemoryBetweenProcesses) {
  if (const char* rendezvous = std::getenv(rendezvous_variable)) {
    join_and_run(1, rendezvous);
    return;
  }
  const test::Rendezvous rendezvous;
  setenv(rendezvous_variable, rendezvous.url().c_str(), 1);
  std::string filter = "--gtest_filter=GpuZeroCopy.EveryKindOfMemoryBetweenProcesses";
  std::string program = "/proc/self/exe";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
  unsetenv(rendezvous_variable);
  join_and_run(0, rendezvous.url());
  int exit_status = 0;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(exit_status, 0);
}

TEST_F(GpuZeroCopy, OneRanksMemoryMayBeReachedAndTheOthersNot) {
  run_ranks(two_ranks(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const Pieces pieces(device, 4, communicator.rank() == 0);
    const Area area{pieces.address(), pieces.bytes()};
    ASSERT_TRUE(communicator.barrier().ok());
    Somewhere somewhere(stream, area, 9);
    call_until_known(communicator, somewhere, 500);
    EXPECT_EQ(communicator.memory().registered_bytes > 0, communicator.rank() == 0);
    EXPECT_EQ(communicator.memory().mapped_bytes > 0, communicator.rank() == 1);
    const Status status =
        communicator.register_memory(reinterpret_cast<void*>(area.address), area.bytes);
    EXPECT_EQ(status.ok(), communicator.rank() == 0);
    EXPECT_EQ(communicator.memory().registered_bytes,
              communicator.rank() == 0 ? pieces.bytes() : 0U);
    ASSERT_TRUE(communicator.barrier().ok());
    ASSERT_TRUE(communicator.destroy().ok());
  });
}

TEST_F(GpuZeroCopy, RegisteredMemoryIsMappedBeforeItsFirstUse) {
  run_ranks(two_ranks(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = std::move(sys::cuda::Memory::allocate(device, area_bytes)).value();
    auto* data = reinterpret_cast<std::byte*>(memory.address());
    ASSERT_TRUE(communicator.register_memory(data + 100, 1000).ok());
    EXPECT_EQ(communicator.memory().registered_bytes, area_bytes);
    ASSERT_TRUE(communicator.barrier().ok());
    EXPECT_EQ(communicator.memory().mapped_bytes, area_bytes);
    std::vector<int> host(4);
    EXPECT_EQ(communicator.register_memory(host.data(), 16).error().kind, ErrorKind::misuse);
    EXPECT_EQ(communicator.register_memory(nullptr, 16).error().kind, ErrorKind::misuse);
    Somewhere somewhere(stream, {memory.address(), memory.bytes()}, 10);
    call_all(communicator, somewhere, 600);
    ASSERT_TRUE(communicator.barrier().ok());
    ASSERT_TRUE(communicator.destroy().ok());
  });
}

TEST_F(GpuZeroCopy, IsOffWhereTheSettingSaysSo) {
  test::RanksOptions options = two_ranks();
  options.settings.emplace_back("UNISONO_GPU_ZERO_COPY", "0");
  run_ranks(options, [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = std::move(sys::cuda::Memory::allocate(device, area_bytes)).value();
    ASSERT_TRUE(communicator.barrier().ok());
    Somewhere somewhere(stream, {memory.address(), memory.bytes()}, 11);
    call_until_known(communicator, somewhere, 700);
    EXPECT_EQ(communicator.memory().registered_bytes, 0U);
    ASSERT_TRUE(communicator.barrier().ok());
    ASSERT_TRUE(communicator.destroy().ok());
  });
}

// A rank goes while the other's kernel waits to be told where its messages go.
TEST_F(GpuZeroCopy, AbortEndsAZeroCopyCall) {
  run_ranks(two_ranks(), [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto device = device_of(rank);
    const TestStream stream(device);
    auto memory = std::move(sys::cuda::Memory::allocate(device, area_bytes)).value();
    auto* data = reinterpret_cast<std::byte*>(memory.address());
    ASSERT_TRUE(communicator.register_memory(data, area_bytes).ok());
    const auto call = [&] {
      return communicator.all_gather(data, data + (std::size_t{1} << 20), 1 << 18,
                                     DataType::float32,
                                     {.algorithm = "direct",
                                      .protocol = Protocol::simple,
                                      .channels = 2,
                                      .stream = stream.handle()});
    };
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(call().ok());
      ASSERT_TRUE(stream.synchronize().ok());
    }
    ASSERT_TRUE(communicator.barrier().ok());
    expect_abort_is_told(communicator, stream, call);
  });
}

// What the registrations rest on.
TEST_F(GpuZeroCopy, MemoryAtTheSameAddressesIsToldApart) {
  const auto device = device_of(0);
  Pieces pieces(device, 2, true);
  const auto first = sys::cuda::allocation_at(*device, pieces.address() + 5);
  const auto second = sys::cuda::allocation_at(*device, pieces.address() + piece_bytes);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->base, pieces.address());
  EXPECT_EQ(first->bytes, piece_bytes);
  EXPECT_EQ(second->base, pieces.address() + piece_bytes);
  EXPECT_NE(first->identity, second->identity);
  EXPECT_TRUE(sys::cuda::is_there(*device, *first));
  pieces.replace();
  EXPECT_FALSE(sys::cuda::is_there(*device, *first));
  EXPECT_FALSE(sys::cuda::allocation_at(*device, 4096));
  auto plain = sys::cuda::Memory::allocate(device, 1000);
  const auto known = sys::cuda::allocation_at(*device, plain->address() + 999);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->base, plain->address());
  *plain = {};
  EXPECT_FALSE(sys::cuda::is_there(*device, *known));
}

}  // namespace
}  // namespace unisono
