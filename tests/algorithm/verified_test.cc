// Every algorithm's plans are proved right: on every placement, for every root, with several
// channels, in place and out of place, with as few slots as an executor may have.
#include <gtest/gtest.h>

#include "algorithm/algorithm.h"
#include "algorithm/placements.h"
#include "base/str.h"
#include "verify/verify.h"

namespace unisono::algorithm {
namespace {

std::string describe(const verify::Report& report) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(report.failures.size(), 3); ++i)
    append(text, str(report.failures[i].describe(), "\n"));
  return text;
}

void expect_proved(const Entry& entry, const Request& request, const std::string& where) {
  SCOPED_TRACE(str(entry.plan_name(), " of ", request.placement.ranks(), " ranks, ", where, ", ",
                   request.channels, " channels, root ", request.root,
                   request.in_place ? ", in place" : ", out of place"));
  Result<plan::Plan> plan = make_plan(entry, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  constexpr int fewest_slots = 2;  // that an executor may have
  const verify::Report report = verify::verify(*plan, {.slots = fewest_slots});
  EXPECT_TRUE(report.ok()) << describe(report);
}

// All roots of small communicators, a few of larger ones.
std::vector<int> roots_of(Collective collective, int ranks) {
  if (!has_root(collective)) return {0};
  std::vector<int> roots;
  for (int root = 0; root < ranks; ++root)
    if (ranks <= 8 || root % 5 == 0 || root == ranks - 1) roots.push_back(root);
  return roots;
}

class VerifiedPlan : public testing::TestWithParam<const Entry*> {};

TEST_P(VerifiedPlan, IsProved) {
  const Entry& entry = *GetParam();
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const NamedPlacement& where : placements_of(ranks))
      for (int channels : {1, 3})
        for (bool in_place : {false, true})
          for (int root : roots_of(entry.collective, ranks)) {
            const Request request{.collective = entry.collective,
                                  .placement = where.placement,
                                  .root = root,
                                  .in_place = in_place,
                                  .channels = channels};
            if (!entry.supports(request).ok()) continue;
            expect_proved(entry, request, where.name);
            if (testing::Test::HasFailure()) return;
          }
}

std::vector<const Entry*> all() {
  std::vector<const Entry*> result;
  for (const Entry& entry : entries()) result.push_back(&entry);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Every, VerifiedPlan, testing::ValuesIn(all()),
                         [](const auto& entry) { return entry.param->plan_name(); });

}  // namespace
}  // namespace unisono::algorithm
