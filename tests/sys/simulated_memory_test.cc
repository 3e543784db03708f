// Memory that simulated processes of a host write to.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "sys/simulated_world.h"

namespace unisono::sys {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

// Two processes of a host, and one of another.
class SimulatedMemory : public testing::Test {
 protected:
  explicit SimulatedMemory(bool hosts_share_memory = false)
      : simulation_({.hosts_share_memory = hosts_share_memory}) {
    for (const char* host : {"a", "a", "b"}) simulation_.add_process(host);
    address_ = simulation_.world(0).address_of(memory_.data(), memory_.size());
  }
  Status write(int process, std::uint64_t offset, std::string_view text) {
    Status out;
    simulation_.start(process, [&] {
      out = simulation_.world(process).write_memory(
          simulation_.world(0).process(), address_ + offset, std::as_bytes(std::span(text)));
    });
    simulation_.run(simulation_.now_ns() + second_ns);
    return out;
  }

  Simulation simulation_;
  std::array<std::byte, 8> memory_{};
  std::uint64_t address_ = 0;
};

class MemoryOfThreads : public SimulatedMemory {
 protected:
  MemoryOfThreads() : SimulatedMemory(true) {}
};

TEST_F(SimulatedMemory, IsWrittenByItsHostWithinItsBounds) {
  EXPECT_TRUE(write(1, 2, "abcdef").ok());
  EXPECT_EQ(std::memcmp(memory_.data() + 2, "abcdef", 6), 0);
  for (const std::uint64_t offset : {3, 9, 100'000})
    EXPECT_EQ(write(1, offset, "ghijkl").error().kind, ErrorKind::environment) << offset;
  EXPECT_FALSE(write(2, 0, "x").ok());
  EXPECT_EQ(std::memcmp(memory_.data() + 2, "abcdef", 6), 0);
}

TEST_F(SimulatedMemory, OfAProcessThatHasEndedIsGone) {
  simulation_.kill(0, Death::process);
  const Status status = write(1, 0, "x");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("No such process"), std::string::npos);
  EXPECT_EQ(memory_[0], std::byte{});
}

TEST_F(SimulatedMemory, HasTheSameAddressInEachRun) {
  // Wherever the real memory is.
  Simulation other({});
  for (const char* host : {"a", "a", "b"}) other.add_process(host);
  const auto elsewhere = std::make_unique<std::array<std::byte, 8>>();
  EXPECT_EQ(other.world(0).address_of(elsewhere->data(), elsewhere->size()), address_);
  EXPECT_EQ(other.world(0).process(), simulation_.world(0).process());
  EXPECT_NE(simulation_.world(1).process(), simulation_.world(0).process());
}

TEST_F(SimulatedMemory, IsLoadedByItsOwnProcessAlone) {
  const ProcessIdentity owner = simulation_.world(0).process();
  EXPECT_EQ(simulation_.world(0).find_memory(owner, address_ + 3), memory_.data() + 3);
  EXPECT_EQ(simulation_.world(1).find_memory(owner, address_), nullptr);
}

TEST_F(MemoryOfThreads, IsLoadedByTheWholeHost) {
  const ProcessIdentity owner = simulation_.world(0).process();
  EXPECT_EQ(simulation_.world(1).process(), owner);
  EXPECT_EQ(simulation_.world(1).find_memory(owner, address_ + 3), memory_.data() + 3);
  EXPECT_EQ(simulation_.world(2).find_memory(owner, address_), nullptr);
}

}  // namespace
}  // namespace unisono::sys
