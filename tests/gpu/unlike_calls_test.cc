// Ranks whose calls on streams do not match, in whatever they can differ, on every path of kernels:
// nobody gets another call's data, and everybody is told both calls.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "gpu/device_copies.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/unlike_calls.h"

namespace unisono {
namespace {

using test::CheckedCall;
using test::TestStream;
using test::Unlike;
using test::usable_devices;

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank) % devices.size()];
}

// After two calls that all ranks make alike, so that slots hold their data.
Unlike one_call(std::string name, const CheckedCall& most, const CheckedCall& one,
                std::string of_most, std::string of_one) {
  return {.name = std::move(name),
          .run =
              [most, one](Communicator& group, bool is_last) {
                const TestStream stream(device_of(group.rank()));
                for (int i = 0; i < 2; ++i) {
                  CheckedCall alike = most;
                  alike.run = test::on(stream);
                  if (std::string wrong = test::checked(group, alike); !wrong.empty())
                    return "expected no error before: " + wrong;
                }
                CheckedCall unlike = is_last ? one : most;
                unlike.run = test::on(stream);
                return test::checked(group, unlike);
              },
          .of_most = std::move(of_most),
          .of_one = std::move(of_one)};
}

// What carries a call that all ranks make alike.
struct Carrier {
  const char* name;
  Protocol protocol;
  std::int64_t count;
  int ranks;
  int max_sms = 0;
};
constexpr Carrier carriers[] = {
    {"interpreter", Protocol::simple, 600, 3},
    {"interpreter_zero_copy", Protocol::simple, 6000, 2},
    {"ll", Protocol::ll, 600, 2},
    {"ll_of_three", Protocol::ll, 60, 3},
    {"ll128", Protocol::ll128, 600, 3},
    {"zero_copy", Protocol::ll128, 6000, 2},
    {"tma_bulk", Protocol::ll128, 6000, 2, 8},
};

class GpuUnlikeCalls : public testing::TestWithParam<Carrier> {
 protected:
  static const Carrier& carrier() { return GetParam(); }
  static int ranks() { return carrier().ranks; }
  void SetUp() override {
    std::string why;
    if (static_cast<int>(usable_devices(&why).size()) < ranks())
      GTEST_SKIP() << ranks() << " ranks need as many devices " << why;
  }
  static void expect_named(const std::vector<Unlike>& all) {
    test::expect_named({.ranks = ranks(),
                        .device = [](int rank) { return device_of(rank)->ordinal(); },
                        .settings = {{"UNISONO_GPU_ZERO_COPY_MIN_BYTES", "8KiB"}}},
                       all);
  }
  static CheckedCall call(Collective collective, std::string algorithm = "") {
    CheckedCall out;
    out.problem.collective = collective;
    out.problem.count = carrier().count;
    out.options.algorithm = std::move(algorithm);
    out.options.protocol = carrier().protocol;
    out.options.max_sms = carrier().max_sms;
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(By, GpuUnlikeCalls, testing::ValuesIn(carriers),
                         [](const auto& parameters) { return std::string(parameters.param.name); });

TEST_P(GpuUnlikeCalls, OfAnotherShapeNameBoth) {
  std::vector<Unlike> all;
  const std::string count = str(carrier().count);
  const CheckedCall most = call(Collective::all_reduce);
  const std::string of_most = str("all_reduce of ", count, " float32, sum");
  CheckedCall one = most;
  one.type = DataType::int32;
  all.push_back(one_call("type", most, one, of_most, str("all_reduce of ", count, " int32, sum")));
  one = most;
  one.problem.operation = ReduceOperation::max;
  all.push_back(
      one_call("operation", most, one, of_most, str("all_reduce of ", count, " float32, max")));
  one = most;
  --one.problem.count;
  all.push_back(one_call("count", most, one, of_most,
                         str("all_reduce of ", carrier().count - 1, " float32, sum")));
  // Of two ranks both would be roots, which only send: each has what its call gives.
  if (ranks() > 2) {
    const CheckedCall from_0 = call(Collective::broadcast);
    CheckedCall from_1 = from_0;
    from_1.problem.root = 1;
    all.push_back(one_call("root", from_0, from_1, str("broadcast of ", count, " float32, root 0"),
                           str("broadcast of ", count, " float32, root 1")));
  }
  expect_named(all);
}

TEST_P(GpuUnlikeCalls, OfAnotherCollectiveNameBoth) {
  std::vector<Unlike> all;
  const std::string count = str(carrier().count);
  const auto add = [&](Collective most, Collective one, std::string of_most, std::string of_one) {
    all.push_back(one_call(str(name(most), " and ", name(one)), call(most), call(one),
                           std::move(of_most), std::move(of_one)));
  };
  add(Collective::all_gather, Collective::all_to_all, str("all_gather of ", count, " float32"),
      str("all_to_all of ", count, " float32"));
  add(Collective::all_gather, Collective::reduce_scatter, str("all_gather of ", count, " float32"),
      str("reduce_scatter of ", count, " float32, sum"));
  add(Collective::gather, Collective::scatter, str("gather of ", count, " float32, root 0"),
      str("scatter of ", count, " float32, root 0"));
  add(Collective::reduce, Collective::gather, str("reduce of ", count, " float32, sum, root 0"),
      str("gather of ", count, " float32, root 0"));
  for (Unlike& unlike : all) unlike.may_end = true;  // those that only send
  expect_named(all);
}

TEST_P(GpuUnlikeCalls, ByAnotherPlanNameBoth) {
  std::vector<Unlike> all;
  all.push_back(one_call("algorithm", call(Collective::all_reduce, "ring"),
                         call(Collective::all_reduce, "one_shot"),
                         str("by plan ring, ", name(carrier().protocol)),
                         str("by plan one_shot, ", name(carrier().protocol))));
  expect_named(all);
}

// Calls by the copy engines, through slots and zero-copy.
struct Copied {
  int ranks;
  std::int64_t count;
};
class GpuUnlikeCopies : public testing::TestWithParam<Copied> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuUnlikeCopies,
                         testing::Values(Copied{2, 600}, Copied{3, 600}, Copied{2, 40'000}),
                         [](const auto& parameters) {
                           const Copied& copied = parameters.param;
                           return str(copied.ranks, "_ranks_", copied.count, "_elements");
                         });

TEST_P(GpuUnlikeCopies, NameBothAndTakeNothing) {
  const auto [ranks, n] = GetParam();
  if (static_cast<int>(usable_devices().size()) < ranks)
    GTEST_SKIP() << ranks << " ranks need as many devices";
  const auto call = [count = n](Collective collective, std::int64_t more = 0) {
    CheckedCall out;
    out.problem.collective = collective;
    out.problem.count = count + more;
    out.options.policy = Policy::zero_sm;
    return out;
  };
  std::vector<Unlike> all;
  const CheckedCall gather = call(Collective::all_gather);
  CheckedCall of_ints = gather;
  of_ints.type = DataType::int32;
  const std::string of_most = str("all_gather of ", n, " float32");
  all.push_back(one_call("type", gather, of_ints, of_most, str("all_gather of ", n, " int32")));
  all.push_back(one_call("count", gather, call(Collective::all_gather, -1), of_most,
                         str("all_gather of ", n - 1, " float32")));
  all.push_back(one_call("collective", gather, call(Collective::all_to_all), of_most,
                         str("all_to_all of ", n, " float32")));
  CheckedCall by_kernels = gather;
  by_kernels.options.policy = Policy::fastest;
  all.push_back(one_call("carrier", gather, by_kernels, "on copy engines", "on the device"));
  test::expect_named(
      {.ranks = ranks, .device = [](int rank) { return device_of(rank)->ordinal(); }}, all);
}

// The last rank calls with host memory, also where the others' kernels wait for nobody.
TEST(GpuUnlikePlaces, NameBoth) {
  for (const int ranks : {2, 3}) {
    if (static_cast<int>(usable_devices().size()) < ranks)
      GTEST_SKIP() << ranks << " ranks need as many devices";
    std::vector<Unlike> all;
    for (const Collective collective :
         {Collective::all_reduce, Collective::broadcast, Collective::barrier})
      for (const bool is_warm : {false, true}) {
        CheckedCall call;
        call.problem.collective = collective;
        call.problem.count = 60;
        all.push_back({.name = str(name(collective), is_warm ? ", warm" : ""),
                       .run =
                           [=](Communicator& group, bool is_last) {
                             const TestStream stream(device_of(group.rank()));
                             CheckedCall on_stream = call;
                             on_stream.run = test::on(stream);
                             for (int i = 0; i < 5 && is_warm; ++i)
                               if (std::string wrong = test::checked(group, on_stream);
                                   !wrong.empty())
                                 return "expected no error before: " + wrong;
                             return test::checked(group, is_last ? call : on_stream);
                           },
                       .of_most = "on the device",
                       .of_one = "on the host",
                       .may_end = has_root(collective)});
      }
    test::expect_named(
        {.ranks = ranks, .device = [](int rank) { return device_of(rank)->ordinal(); }}, all);
  }
}

// A message of another type or count than its receiver's, between equal messages.
struct Carried {
  std::int64_t count;
  Policy policy;
};
class GpuUnlikeMessages : public testing::TestWithParam<Carried> {};
INSTANTIATE_TEST_SUITE_P(
    Of, GpuUnlikeMessages,
    testing::Values(Carried{600, Policy::fastest}, Carried{6000, Policy::fastest},
                    Carried{600, Policy::zero_sm}, Carried{40'000, Policy::zero_sm}),
    [](const auto& parameters) {
      const Carried& carried = parameters.param;
      return str(carried.count, carried.policy == Policy::zero_sm ? "_copied" : "");
    });

TEST_P(GpuUnlikeMessages, AreNotTaken) {
  constexpr int ranks = 2;
  if (usable_devices().size() < ranks) GTEST_SKIP() << "two ranks need as many devices";
  const std::int64_t count = GetParam().count;
  const std::vector<std::pair<DataType, std::int64_t>> received{{DataType::int32, count},
                                                                {DataType::float32, count - 1}};
  for (const auto& other : received)
    test::run_ranks(
        {.ranks = ranks,
         .device = [](int rank) { return device_of(rank)->ordinal(); },
         .settings = {{"UNISONO_GPU_ZERO_COPY_MIN_BYTES", "8KiB"}}},
        [&](Communicator& group) {
          const auto device = device_of(group.rank());
          const TestStream stream(device);
          const std::vector<std::int32_t> own(static_cast<std::size_t>(count), group.rank() + 7);
          const std::size_t bytes = own.size() * sizeof own[0];
          const auto memory = sys::cuda::Memory::allocate(device, bytes).value();
          ASSERT_TRUE(device->upload(memory.address(), own.data(), bytes).ok());
          auto* data = reinterpret_cast<void*>(memory.address());
          const CallOptions options{.timeout = std::chrono::seconds(120),
                                    .stream = stream.handle(),
                                    .policy = GetParam().policy};
          if (group.rank() == 0) {
            ASSERT_TRUE(group.send(data, count, DataType::float32, 1, options).ok());
          } else {
            ASSERT_TRUE(group.recv(data, other.second, other.first, 0, options).ok());
          }
          ASSERT_TRUE(test::eventually([&] { return !group.failure().ok(); }));
          const Error error = group.failure().error();
          EXPECT_EQ(error.reason, FailureReason::mismatch) << error.describe();
          EXPECT_NE(error.message.find("of another call"), std::string::npos) << error.message;
          ASSERT_TRUE(stream.synchronize().ok());
          std::vector<std::int32_t> after(own.size());
          ASSERT_TRUE(device
                          ->copy(reinterpret_cast<sys::cuda::DeviceAddress>(after.data()),
                                 memory.address(), bytes)
                          .ok());
          // A host that ends the wait of a copy lets the copy run on.
          if (GetParam().policy != Policy::zero_sm) {
            EXPECT_EQ(after, own);
          }
        });
}

}  // namespace
}  // namespace unisono
