// Calls in a word, and what is said of any word.

#include "base/fingerprint.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/fixed_text.h"

namespace unisono {
namespace {

TEST(Fingerprint, EveryFieldDecidesTheWordAndIsTold) {
  const Fingerprint call{
      .collective = Collective::reduce, .type = DataType::float32, .root = 3, .count = 10};
  EXPECT_EQ(describe_call(pack(call)), "reduce of 10 float32, sum, root 3");
  std::set<std::uint64_t> words;
  for (int collective = 0; collective < collective_count; ++collective)
    for (int type = 0; type < data_type_count; ++type)
      for (int operation = 0; operation < reduce_operation_count; ++operation)
        for (const std::uint32_t root : {0u, 1u, 65'535u})
          for (const std::int64_t count : {0L, 1L, (1L << 34) - 1, 1L << 34, (1L << 34) + 1})
            words.insert(pack({.collective = static_cast<Collective>(collective),
                               .type = static_cast<DataType>(type),
                               .operation = static_cast<ReduceOperation>(operation),
                               .root = root,
                               .count = count}));
  EXPECT_EQ(words.size(), 12U * 14 * 6 * 3 * 5);
  EXPECT_FALSE(words.contains(0));
}

TEST(Fingerprint, IsTold) {
  const auto told = [](const Fingerprint& call) { return describe_call(pack(call)); };
  EXPECT_EQ(told({.collective = Collective::barrier}), "barrier");
  EXPECT_EQ(told({.collective = Collective::all_to_all_v, .type = DataType::int64}),
            "all_to_all_v of int64");
  EXPECT_EQ(told({.collective = Collective::broadcast, .type = DataType::uint8, .root = 7}),
            "broadcast of 0 uint8, root 7");
  EXPECT_EQ(told({.collective = Collective::point_to_point, .count = 4}), "a message of 4 int8");
  EXPECT_EQ(told({.collective = Collective::custom, .root = 0x3f2a, .count = 4}),
            "custom of 4 int8, sum, program 3f2a");
  EXPECT_EQ(told({.collective = Collective::all_gather, .count = (3L << 34) + 5}),
            "all_gather of n * 2^34 + 5 int8");
}

// It comes from peers.
TEST(Fingerprint, AnyWordHasADescription) {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 100'000; ++i) EXPECT_FALSE(describe_call(random()).empty());
  EXPECT_EQ(describe_call(0), "an unknown call (fingerprint 0)");
  EXPECT_EQ(describe_call(~std::uint64_t{0}), "an unknown call (fingerprint ffffffffffffffff)");
}

TEST(CallId, IsToldByWhatDiffers) {
  const std::uint64_t what = pack({.collective = Collective::all_gather, .count = 5});
  const std::uint32_t plan = plan_id("mine", 0x1234, Protocol::ll, 3);
  const CallId call{.what = what, .number = 4, .plan = plan};
  const auto told = [&](CallId other) { return describe_call(call, other); };
  EXPECT_EQ(told({pack({.collective = Collective::barrier}), 4, plan}), "all_gather of 5 int8");
  EXPECT_EQ(told({what, 5, plan}), "all_gather of 5 int8, as call 4");
  EXPECT_EQ(told({what, 4, 1}), "all_gather of 5 int8, by plan mine, ll, 3 channels");
  EXPECT_EQ(told({what, 4, plan_id("mine", 0x1234, Protocol::ll, 3, Place::device)}),
            "all_gather of 5 int8, by plan mine, ll, 3 channels, on the host");
  // It comes from a peer.
  EXPECT_EQ(describe_call({.what = what, .number = 4, .plan = ~0U}, call),
            "all_gather of 5 int8, by plan an unknown plan (ffffffff), in an unknown place");
}

TEST(PlanId, TellsNamesDigestsProtocolsChannelsAndPlacesApart) {
  std::set<std::uint32_t> ids;
  for (const char* name : {"ring", "two_shot"})
    for (const std::uint64_t digest : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63})
      for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128})
        for (const int channels : {1, 2, 64})
          for (const Place place :
               {Place::host, Place::device, Place::copy_engines, Place::staged, Place::mixed})
            ids.insert(plan_id(name, digest, protocol, channels, place));
  EXPECT_EQ(ids.size(), 2U * 3 * 3 * 3 * 5);
  EXPECT_EQ(describe_plan(plan_id("ring", 0, Protocol::simple, 1)), "ring, simple, 1 channel");
}

TEST(CallTag, TellsCallsAndPlansApartButNotNumbers) {
  EXPECT_EQ(call_tag({}), 0U);
  std::set<std::uint32_t> tags;
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather})
    for (int type = 0; type < data_type_count; ++type)
      for (std::int64_t count = 0; count < 64; ++count)
        for (const std::uint32_t plan : {1U, 2U, 1U << 31}) {
          const std::uint64_t what =
              pack({.collective = collective, .type = static_cast<DataType>(type), .count = count});
          tags.insert(call_tag({what, 7, plan}));
          EXPECT_EQ(call_tag({what, 8, plan}), call_tag({what, 7, plan}));
        }
  EXPECT_EQ(tags.size(), 2U * data_type_count * 64 * 3);
}

// It comes from peers.
TEST(PlanId, AnyWordHasADescription) {
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 10'000; ++i)
    EXPECT_FALSE(describe_plan(static_cast<std::uint32_t>(random())).empty());
  EXPECT_EQ(describe_plan(0), "an unknown plan (0)");
  EXPECT_EQ(describe_plan(0xfffff402), "number fffff, ll, 2 channels");
}

TEST(FixedText, IsCutToFitAndPrintable) {
  FixedText<8> text;
  EXPECT_TRUE(text.empty());
  text.set("rank 10 is late");
  EXPECT_EQ(text.text(), "rank 10");
  text.set("a\n\xff\x7f");
  EXPECT_EQ(text.text(), "a???");
  // Another process may have written no end.
  FixedText<8> endless;
  std::fill_n(reinterpret_cast<char*>(&endless), sizeof endless, 'x');
  EXPECT_EQ(endless.text(), "xxxxxxxx");
}

}  // namespace
}  // namespace unisono
