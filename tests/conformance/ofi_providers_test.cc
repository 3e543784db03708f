// Which of libfabric's providers this machine lacks, and why: the suite then runs without them.

#include "conformance/factories.h"

namespace unisono::test {
namespace {

class OfiProviders : public testing::TestWithParam<OfiProvider> {};
INSTANTIATE_TEST_SUITE_P(All, OfiProviders, testing::ValuesIn(ofi_providers));

TEST_P(OfiProviders, AreHeldToTheRulesOrSayWhyNot) {
  const auto made = transport::ofi::make_transport(Job::options(fresh_job()), GetParam().name);
  if (!made.ok()) GTEST_SKIP() << made.error().describe();
  const std::string name = GetParam().factory;
  EXPECT_EQ(std::ranges::count(factories(), name, &Factory::name), 1) << name;
}

}  // namespace
}  // namespace unisono::test
