// What is counted of a direction of a connection: exact posts and bytes over every transport, and
// times by a clock that the test sets.

#include "transport/traffic.h"

#include <tuple>

#include "conformance/harness.h"
#include "sys/simulated_world.h"
#include "transport/fifo.h"
#include "transport/fifo_layout.h"

namespace unisono::test {
namespace {

using namespace transport;

// Simulated time that goes on when the test says so.
class SetClock {
 public:
  SetClock() : simulation_({.seed = 1}) {
    const int process = simulation_.add_process("host");
    world_ = &simulation_.world(process);
    simulation_.start(process, stay(*world_));
    clock_.emplace(*world_);
    pass(1);  // no clock that runs stands at 0
  }
  void pass(std::int64_t ns) {
    time_ns_ += ns;
    simulation_.at(time_ns_, [] {});
    simulation_.run(time_ns_);
    ASSERT_EQ(simulation_.now_ns(), time_ns_);
  }
  sys::CallClock* clock() { return &*clock_; }

 private:
  // A simulation ends with its last task.
  sys::Task<void> stay(sys::World& world) {
    sys::Wait wait(world.scheduler(), never_, sys::no_deadline_ns);
    co_await wait;
  }

  sys::WaitQueue never_;
  sys::Simulation simulation_;
  sys::World* world_ = nullptr;
  std::optional<sys::CallClock> clock_;
  std::int64_t time_ns_ = 0;
};

trace::Traffic figures_of(const FlightMeter& meter) {
  trace::Traffic out;
  meter.add_to(out);
  return out;
}

TEST(FlightMeter, KnowsHowLongAndHowMuchWasInFlight) {
  SetClock time;
  FlightMeter meter(time.clock(), Timing::every_call, 4);
  time.pass(1000);  // before the first post: neither busy nor idle
  meter.post(0, 100);
  time.pass(10);
  meter.post(1, 300);
  time.pass(20);
  meter.land_below(1);
  time.pass(5);
  meter.land_below(1);  // nothing new
  meter.land_below(2);
  EXPECT_FALSE(meter.is_in_flight());
  time.pass(50);
  meter.post(2, 40);
  time.pass(15);
  meter.land_below(3);
  time.pass(1000);  // after the last one: neither

  const trace::Traffic figures = figures_of(meter);
  EXPECT_EQ(figures.busy_ns, 10 + 20 + 5 + 15);
  EXPECT_EQ(figures.idle_ns, 50);
  EXPECT_EQ(figures.most_in_flight_bytes, 400u);
  EXPECT_EQ(figures.mean_in_flight_bytes, (10 * 100 + 20 * 400 + 5 * 300 + 15 * 40) / 50u);
}

TEST(FlightMeter, TheTimeBetweenCallsIsIdle) {
  SetClock time;
  FlightMeter meter(time.clock(), Timing::every_call, 4);
  ASSERT_TRUE(meter.begins_timed());
  meter.post(0, 100);
  time.pass(10);
  meter.end_call();
  time.pass(1000);
  meter.end_call();  // a call that ends again has not begun
  meter.land_below(1);
  EXPECT_EQ(figures_of(meter).busy_ns, 10);
  EXPECT_EQ(figures_of(meter).idle_ns, 1000);

  // One of two is still there when somebody looks.
  ASSERT_TRUE(meter.begins_timed());
  meter.post(1, 100);
  meter.post(2, 100);
  time.pass(10);
  meter.end_call();
  time.pass(1000);
  meter.land_below(2);
  time.pass(7);
  meter.land_below(3);
  EXPECT_EQ(figures_of(meter).busy_ns, 10 + 10 + 7);
  EXPECT_EQ(figures_of(meter).idle_ns, 1000 + 1000);
}

TEST(FlightMeter, ItsRingGoesRound) {
  SetClock time;
  FlightMeter meter(time.clock(), Timing::every_call, 2);
  for (std::uint64_t i = 0; i < 9; ++i) {
    meter.post(i, 10 + i);
    time.pass(1);
    if (i > 0) meter.land_below(i);
  }
  EXPECT_EQ(figures_of(meter).most_in_flight_bytes, 17u + 18u);
  meter.land_below(9);
  EXPECT_FALSE(meter.is_in_flight());
}

// The first eight calls, and later one in 64, which stands for those before it.
TEST(FlightMeter, CallsThatAreNotTimedCountAsOneThatIs) {
  SetClock time;
  FlightMeter meter(time.clock(), Timing::some_calls, 4);
  std::vector<std::uint64_t> timed;
  for (std::uint64_t call = 0; call <= 64; ++call) {
    const bool is_timed = meter.begins_timed();
    if (is_timed) {
      timed.push_back(call);
      meter.post(call, 100);
    }
    time.pass(10);
    if (is_timed) meter.land_below(call + 1);
    meter.end_call();
    time.pass(30);
  }
  EXPECT_EQ(timed, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 64}));
  EXPECT_EQ(figures_of(meter).busy_ns, 65 * 10);
  EXPECT_EQ(figures_of(meter).idle_ns, 64 * 30);
  EXPECT_EQ(figures_of(meter).mean_in_flight_bytes, 100u);
}

TEST(FlightMeter, NothingIsTimedWithoutAClock) {
  FlightMeter meter(nullptr, Timing::every_call, 4);
  EXPECT_FALSE(meter.begins_timed());
  meter.end_call();
  EXPECT_EQ(figures_of(meter).most_in_flight_bytes, 0u);
}

FifoOptions options_of_test() {
  return {.slots = 4,
          .simple_slot_bytes = 64 << 10,
          .ll_slot_bytes = 64 << 10,
          .ll128_slot_bytes = 64 << 10,
          .zero_copy_min_bytes = 48 << 10};
}

using Parameters = std::tuple<Factory, Protocol>;
class Traffic : public testing::TestWithParam<Parameters> {};
INSTANTIATE_TEST_SUITE_P(All, Traffic,
                         testing::Combine(testing::ValuesIn(factories_inside_a_process()),
                                          testing::Values(Protocol::simple, Protocol::ll,
                                                          Protocol::ll128)),
                         [](const testing::TestParamInfo<Parameters>& parameters) {
                           return std::get<0>(parameters.param).name + "_" +
                                  std::string(name(std::get<1>(parameters.param)));
                         });

// Messages in the header, in a head, in a slot, and so long that they are timed in mapped memory.
TEST_P(Traffic, BothEndsCountEveryMessage) {
  const auto& [factory, protocol] = GetParam();
  const FifoOptions options = options_of_test();
  Job job(factory, 2);
  Pair pair(job, fifo_geometry(options));
  SetClock time;
  const auto send = make_send_fifo(*pair.a, protocol, options, time.clock());
  const auto recv = std::move(*make_recv_fifo(*pair.b, protocol, options));
  const auto until = [&](auto done) {
    return eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      Result<bool> now = done();
      EXPECT_TRUE(now.ok()) << now.error().describe();
      return !now.ok() || *now;
    });
  };
  const std::vector<std::size_t> sizes{8, 500, 4096, 20'000, 30'000, 1, 16 << 10, (16 << 10) - 1};
  const std::vector<std::byte> content(30'000);
  std::uint64_t posts = 0, bytes = 0;
  for (int round = 0; round < 3; ++round)
    for (const std::size_t size : sizes) {
      ASSERT_TRUE(until([&] { return send->can_send(); }));
      const Piece piece{content.data(), size};
      ASSERT_TRUE(send->send(std::span(&piece, 1)).ok());
      ++posts;
      bytes += size;
      EXPECT_EQ(send->traffic().posts, posts);
      EXPECT_EQ(send->traffic().bytes, bytes);
      EXPECT_EQ(recv->traffic().posts, posts - 1) << "it has not taken it";
      time.pass(1000);
      ASSERT_TRUE(until([&] { return recv->arrived(size); }));
      ASSERT_TRUE(recv->release().ok());
      EXPECT_EQ(recv->traffic().posts, posts);
      EXPECT_EQ(recv->traffic().bytes, bytes);
      ASSERT_TRUE(until([&]() -> Result<bool> {
        auto flushed = send->flush();
        send->settle();
        return flushed.ok() ? Result<bool>(!send->flight().is_in_flight()) : std::move(flushed);
      }));
      time.pass(10'000);
    }
  const trace::Traffic figures = send->traffic();
  const bool is_mapped = pair.a->host_link() != nullptr;
  const std::uint64_t timed = is_mapped ? 3 * 3 : posts;
  EXPECT_EQ(figures.busy_ns, static_cast<std::int64_t>(timed) * 1000);
  const std::int64_t gaps_ns = static_cast<std::int64_t>(posts - timed) * 11'000;
  // Before the first of them that is timed, 3 others; after the last, one.
  const std::int64_t outside_ns = is_mapped ? (3 + 1) * 11'000 : 0;
  EXPECT_EQ(figures.idle_ns, static_cast<std::int64_t>(timed - 1) * 10'000 + gaps_ns - outside_ns);
  EXPECT_EQ(figures.most_in_flight_bytes, 30'000u);
  EXPECT_EQ(figures.mean_in_flight_bytes,
            is_mapped ? (20'000 + 30'000 + (16 << 10)) / 3u : bytes / posts);
}

}  // namespace
}  // namespace unisono::test
