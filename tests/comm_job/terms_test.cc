// What decides which plan runs is the same on all ranks, or they do not join.

#include "comm/job/terms.h"

#include <gtest/gtest.h>

#include <string_view>

namespace unisono::comm {
namespace {

struct Difference {
  const char* name;
  void (*make)(Terms& terms);
  std::string_view told;
};
const Difference differences[] = {
    {"Device", [](Terms& terms) { terms.has_device = true; },
     "rank 2 was given no CUDA device and rank 5 was given one; name a device on all ranks or on "
     "none"},
    {"Signals", [](Terms& terms) { terms.has_signals = true; },
     "rank 2 asks for no signals and rank 5 does; ask for signals on all ranks or on none"},
    {"SelectionFile", [](Terms& terms) { terms.selection_file = 7; },
     "the file of UNISONO_SELECTION_FILE is not the same on ranks 2 and 5; give all ranks one "
     "file"},
    {"ForcedPlans", [](Terms& terms) { terms.forced_plans = 7; },
     "UNISONO_ALGORITHM, UNISONO_PROTOCOL or UNISONO_CHANNELS differs between ranks 2 and 5; they "
     "must be the same on all ranks"},
    {"Flat", [](Terms& terms) { terms.is_flat = true; },
     "UNISONO_FLAT is 0 on rank 2 and 1 on rank 5; it must be the same on all ranks"},
    {"Policy", [](Terms& terms) { terms.calls.policy = Policy::zero_sm; },
     "the policy is fastest on rank 2 and zero_sm on rank 5; it must be the same on all ranks"},
    {"MaxSms", [](Terms& terms) { terms.calls.max_sms = 8; },
     "max_sms is 0 on rank 2 and 8 on rank 5; it must be the same on all ranks"},
    {"ComputeOverlap", [](Terms& terms) { terms.calls.compute_overlap = true; },
     "UNISONO_GPU_COMPUTE_OVERLAP is 0 on rank 2 and 1 on rank 5; it must be the same on all "
     "ranks"},
    {"CheckCalls", [](Terms& terms) { terms.checks_calls = true; },
     "UNISONO_CHECK_CALLS is 0 on rank 2 and 1 on rank 5; it must be the same on all ranks"},
    {"Slots", [](Terms& terms) { terms.fifo_options.slots = 3; },
     "UNISONO_SLOTS is 8 on rank 2 and 3 on rank 5; it must be the same on all ranks"},
};

class TermsThatDiffer : public testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(Fields, TermsThatDiffer, testing::ValuesIn(differences),
                         [](const auto& parameters) { return parameters.param.name; });

TEST_P(TermsThatDiffer, AreNamedWithBothValues) {
  const Terms mine;
  Terms other;
  GetParam().make(other);
  EXPECT_NE(write_terms(mine), write_terms(other));
  const Error told = explain_terms(2, write_terms(mine), 5, write_terms(other));
  EXPECT_EQ(told.kind, ErrorKind::misuse);
  EXPECT_EQ(told.message, GetParam().told);
}

TEST(Terms, ThatCannotBeReadAreThePeersFault) {
  std::vector<std::byte> cut = write_terms(Terms{});
  cut.pop_back();
  const Error told = explain_terms(2, write_terms(Terms{}), 5, cut);
  EXPECT_EQ(told.kind, ErrorKind::peer);
  EXPECT_EQ(told.peer, 5);
}

}  // namespace
}  // namespace unisono::comm
