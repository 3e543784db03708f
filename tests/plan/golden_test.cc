#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "plan/check.h"
#include "plan/json.h"
#include "plan/sample_plans.h"
#include "plan/text.h"
#include "support/folders.h"
#include "support/golden.h"

namespace unisono::plan {
namespace {

class Golden : public testing::TestWithParam<Plan> {};

TEST_P(Golden, TextIsAsBefore) {
  const Plan& plan = GetParam();
  ASSERT_TRUE(check(plan, format_limits()).ok()) << check(plan, format_limits()).error().message;
  const std::string name = plan.header.name + ".plan";
  test::expect_golden(name, print(plan));
  const auto again = parse(test::read_golden(name));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == plan);
}

TEST_P(Golden, JsonIsAsBefore) {
  const Plan& plan = GetParam();
  const std::string name = plan.header.name + ".plan.json";
  test::expect_golden(name, to_json(plan));
  const auto again = from_json(test::read_golden(name));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == plan);
}

// What docs/reference/plan.md reads line by line is what the printer prints.
TEST(Documentation, ShowsTheRingAsPrinted) {
  std::ifstream file(test::source_folder() + "/docs/reference/plan.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const Plan ring = test::ring();
  EXPECT_NE(page.find("```text\n" + print(ring.header, ring.programs[0]) + "```"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Samples, Golden, testing::ValuesIn(test::sample_plans()),
                         [](const auto& sample) { return sample.param.header.name; });

}  // namespace
}  // namespace unisono::plan
