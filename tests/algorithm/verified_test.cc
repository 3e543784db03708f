// Every algorithm's plans are verified: on every placement, for every root, with several
// channels, in place and out of place, with as few slots as an executor may have.
#include <gtest/gtest.h>

#include "algorithm/algorithm.h"
#include "algorithm/every_entry.h"
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

constexpr int fewest_slots = 2;   // that an executor may have
constexpr int default_slots = 8;  // UNISONO_SLOTS

void expect_proved(const plan::Plan& plan, int slots) {
  const verify::Report report = verify::verify(plan, {.slots = slots});
  EXPECT_TRUE(report.ok()) << slots << " slots\n" << describe(report);
}

// All roots of small communicators, a few of larger ones.
std::vector<int> roots_of(Collective collective, int ranks) {
  if (!has_root(collective)) return {0};
  std::vector<int> roots;
  for (int root = 0; root < ranks; ++root)
    if (ranks <= 8 || root % 5 == 0 || root == ranks - 1) roots.push_back(root);
  return roots;
}

class VerifiedPlan : public testing::TestWithParam<const Entry*> {
 protected:
  // Every plan of `ranks` ranks. Those that do not depend on the placement are proved once.
  void prove_all(int ranks, int slots);
};

void VerifiedPlan::prove_all(int ranks, int slots) {
  const Entry& entry = *GetParam();
  for (const Variant& variant : variants_for(ranks))
    for (int root : roots_of(entry.collective, ranks)) {
      plan::Plan proved;
      for (const NamedPlacement& where : placements_of(ranks)) {
        const Request request{.collective = entry.collective,
                              .placement = where.placement,
                              .root = root,
                              .in_place = variant.in_place,
                              .channels = variant.channels};
        if (!entry.supports(request).ok()) continue;
        SCOPED_TRACE(str(entry.plan_name(), " of ", ranks, " ranks, ", where.name, ", ",
                         request.channels, " channels, root ", root,
                         request.in_place ? ", in place" : ", out of place"));
        Result<plan::Plan> plan = make_plan(entry, request);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        if (*plan == proved) continue;
        expect_proved(*plan, slots);
        if (HasFailure()) return;
        proved = std::move(plan).value();
      }
    }
}

TEST_P(VerifiedPlan, IsProvedWithTheFewestSlots) {
  for (int ranks = 1; ranks <= (is_sanitized ? 6 : 17) && !HasFailure(); ++ranks)
    prove_all(ranks, fewest_slots);
}

TEST_P(VerifiedPlan, IsProvedWithTheDefaultSlots) {
  prove_all(is_sanitized ? 5 : 9, default_slots);
}

INSTANTIATE_TEST_SUITE_P(Every, VerifiedPlan, testing::ValuesIn(every_entry()), name_of_entry);

}  // namespace
}  // namespace unisono::algorithm
