#include "plan/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "plan/check.h"
#include "plan/sample_plans.h"
#include "plan/text.h"
#include "support/folders.h"
#include "support/random_plan.h"
#include "support/sanitized.h"

namespace unisono::plan {
namespace {

std::string error_of(const std::string& text) {
  const auto plan = from_json(text);
  if (plan.ok()) return "no error";
  EXPECT_EQ(plan.error().kind, ErrorKind::misuse);
  return plan.error().message;
}

// The ring's JSON with the first `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(test::ring());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanJson, EveryValidPlanReadsBackTheSame) {
  for (std::uint64_t seed = 0; seed < (test::is_sanitized ? 150 : 1000); ++seed) {
    const Plan plan = test::random_plan(seed);
    const std::string text = to_json(plan);
    const auto again = from_json(text);
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.error().message << "\n" << text;
    ASSERT_TRUE(*again == plan) << "seed " << seed << "\n" << print(plan) << print(*again);
  }
}

TEST(PlanJson, RefusesOtherFormatsAndVersions) {
  EXPECT_EQ(error_of("{}"),
            "this JSON is not a plan: its member \"format\" must be \"unisono-plan\"");
  EXPECT_EQ(error_of("[]"),
            "this JSON is not a plan: its member \"format\" must be \"unisono-plan\"");
  EXPECT_EQ(error_of(changed("\"version\": 1", "\"version\": 2, \"new_field\": {}")),
            "version: 2 is newer than this library, which reads 1; use a newer version of unisono");
  EXPECT_EQ(error_of(changed("\"version\": 1", "\"version\": 0")),
            "version: 0; this library reads 1");
  EXPECT_EQ(error_of(changed("\"version\": 1", "\"version\": \"1\"")),
            "version: a plan must have the version of its format, an integer");
  EXPECT_EQ(error_of(R"({"format": "unisono-plan"})"),
            "version: a plan must have the version of its format, an integer");
  EXPECT_EQ(error_of(changed("\"unisono-plan\"", "\"another-plan\"")),
            "this JSON is not a plan: its member \"format\" must be \"unisono-plan\"");
}

TEST(PlanJson, NamesThePlaceOfWhatIsWrong) {
  EXPECT_EQ(error_of(changed("\"channels\": 1", "\"chanels\": 1")), "channels: is missing");
  EXPECT_EQ(error_of(changed("\"channels\": 1", "\"channels\": 1, \"chanels\": 1")),
            "chanels: is not known; did you mean channels?");
  EXPECT_EQ(error_of(changed("\"in_place\": false", "\"in_place\": 0")),
            "in_place: expected a boolean, found an integer");
  EXPECT_EQ(error_of(changed("\"ranks\": 4", "\"ranks\": 3000000000")),
            "ranks: 3000000000 is out of range; it must be 0 to 2147483647");
  EXPECT_EQ(error_of(changed("\"send\"", "\"snd\"")).substr(0, 73),
            "programs[0].thread_blocks[0].body[0].operation: 'snd' is none; it must be");
  EXPECT_EQ(error_of(changed("\"buffer\": \"input\"", "\"buffer\": \"memory\"")),
            "programs[0].thread_blocks[0].body[0].source.buffer: 'memory' is none; it must be one "
            "of input, output, scratch");
  EXPECT_EQ(
      error_of(changed("\"index\": 0", "\"index\": \"0\"")),
      "programs[0].thread_blocks[0].body[0].source.index: expected an object, found a string");
  EXPECT_EQ(error_of(changed("\"modulus\": 4", "\"modulus\": 4, \"k\": 1")),
            "programs[0].thread_blocks[0].body[1].body[0].source.index.k: is not known; did you "
            "mean i, j?");
}

TEST(PlanJson, RefusesFieldsThatAnOperationDoesNotUse) {
  EXPECT_NE(error_of(changed("{\"operation\": \"send\", ",
                             "{\"operation\": \"send\", \"destination\": {\"buffer\": \"output\", "
                             "\"index\": 0}, ")),
            "no error");
  EXPECT_NE(
      error_of(changed("{\"operation\": \"send\", ", "{\"operation\": \"send\", \"peers\": [1], ")),
      "no error");
}

TEST(PlanJson, RefusesPeersThatAreNoRanks) {
  for (const char* peer : {"\"1\"", "1.0", "null", "2147483648", "-2147483649"})
    EXPECT_EQ(
        error_of(changed("{\"operation\": \"send\", ",
                         "{\"operation\": \"send\", \"peers\": [1, " + std::string(peer) + "], ")),
        "programs[0].thread_blocks[0].body[0].peers: element 1 is no rank")
        << peer;
}

TEST(PlanJson, RefusesLoopsThatNestTooDeep) {
  const std::string loop = "{\"loop\": 1, \"body\": [";
  std::string text =
      changed("{\"operation\": \"send\"", loop + loop + loop + "{\"operation\": \"send\"");
  const auto at = text.find("\"index\": 0}}") + 12;
  text.insert(at, "]}]}]}");
  EXPECT_EQ(error_of(text),
            "programs[0].thread_blocks[0].body[0].body[0].body[0]: a loop is nested inside 2 "
            "loops, which is the deepest allowed");
}

TEST(PlanJson, ChecksWhatItHasRead) {
  EXPECT_EQ(error_of(changed("\"index\": 0", "\"index\": 4")),
            "plan ring_all_reduce, rank 0: thread block 0, step 0 (send): input[4] is outside of "
            "the buffer; it has 4 chunks, 0..3");
}

// The schema's enumerations and limits are those of the code.
TEST(PlanSchema, AgreesWithTheCode) {
  std::ifstream file(test::source_folder() + "/docs/schema/plan-v1.schema.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto schema = json::parse(text);
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  const json::Value& properties = *schema->find("properties");
  const json::Value& definitions = *schema->find("$defs");
  const auto in = [](const json::Value& object, std::initializer_list<const char*> path) {
    const json::Value* at = &object;
    for (const char* key : path) {
      at = at->find(key);
      if (at == nullptr) ADD_FAILURE() << key;
      if (at == nullptr) return json::Value();
    }
    return *at;
  };
  const auto names = [](auto first, int count) {
    json::Array out;
    for (int i = 0; i < count; ++i) out.emplace_back(name(static_cast<decltype(first)>(i)));
    return json::Value(std::move(out));
  };
  EXPECT_EQ(in(properties, {"collective", "enum"}), names(Collective{}, collective_count));
  EXPECT_EQ(in(properties, {"protocol", "enum"}), names(Protocol{}, protocol_count));
  EXPECT_EQ(in(definitions, {"step", "properties", "operation", "enum"}),
            names(Operation{}, operation_count));
  EXPECT_EQ(in(definitions, {"location", "properties", "buffer", "enum"}),
            names(Buffer{}, buffer_count));
  json::Array with_source;
  json::Array with_destination;
  for (int i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (reads_source(operation)) with_source.emplace_back(name(operation));
    if (writes_destination(operation)) with_destination.emplace_back(name(operation));
  }
  const json::Array conditions = in(definitions, {"step", "allOf"}).array();
  EXPECT_EQ(in(conditions[0], {"if", "properties", "operation", "enum"}), json::Value(with_source));
  EXPECT_EQ(in(conditions[1], {"if", "properties", "operation", "enum"}),
            json::Value(with_destination));

  const Limits limits = format_limits();
  EXPECT_EQ(in(properties, {"version", "const"}).integer(), format_version);
  EXPECT_EQ(in(properties, {"ranks", "maximum"}).integer(), limits.max_ranks);
  EXPECT_EQ(in(definitions, {"rank", "maximum"}).integer(), limits.max_ranks - 1);
  EXPECT_EQ(in(properties, {"root", "maximum"}).integer(), limits.max_ranks - 1);
  EXPECT_EQ(in(properties, {"channels", "maximum"}).integer(), limits.max_channels);
  EXPECT_EQ(in(properties, {"chunks_per_block", "maximum"}).integer(), limits.max_chunks_per_block);
  EXPECT_EQ(in(properties, {"input_blocks", "maximum"}).integer(), limits.max_ranks);
  EXPECT_EQ(in(definitions, {"program", "properties", "scratch_blocks", "maximum"}).integer(),
            limits.max_scratch_blocks);
  EXPECT_EQ(in(definitions, {"program", "properties", "thread_blocks", "maxItems"}).integer(),
            limits.max_thread_blocks);
  EXPECT_EQ(in(definitions, {"iterations", "maximum"}).integer(), limits.max_steps);
  EXPECT_EQ(in(definitions, {"step", "properties", "count", "maximum"}).integer(),
            limits.max_step_count);
}

}  // namespace
}  // namespace unisono::plan
