#include "comm/join/location.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "sys/host.h"

namespace unisono::comm {
namespace {

std::string slurm(std::string_view address, std::string_view pattern) {
  const auto location = location_from_slurm(address, pattern, "tux1.example.org");
  if (location.ok()) return topo::to_text(*location);
  EXPECT_EQ(location.error().kind, ErrorKind::misuse);
  return location.error().message;
}

TEST(Location, OfSlurmNamesTheNearestSwitchFirst) {
  EXPECT_EQ(slurm("s0.s4.s8.tux1", "switch.switch.switch.node"),
            "switch1=s8,switch2=s4,switch3=s0");
  EXPECT_EQ(slurm("s0.tux1", "switch.node"), "switch=s0");
  EXPECT_EQ(slurm("agg.b2.tux1.example.org", "aggregate.block.node"), "block=b2,aggregate=agg");
  EXPECT_EQ(slurm("tux1", "node"), "");
  // More than can be kept: the nearest.
  EXPECT_EQ(slurm("a.b.c.d.e.f.g.tux1", "switch.switch.switch.switch.switch.switch.switch.node"),
            "switch1=g,switch2=f,switch3=e,switch4=d,switch5=c,switch6=b");
}

TEST(Location, OfSlurmThatDoesNotFitIsRefused) {
  const std::string both = "SLURM_TOPOLOGY_ADDR is 's0.tux1' and SLURM_TOPOLOGY_ADDR_PATTERN is ";
  EXPECT_EQ(slurm("s0.tux1", "switch.switch.node"),
            both + "'switch.switch.node': the address has 2 parts; it needs 3");
  EXPECT_EQ(slurm("s0.tux1", "switch.switch"),
            both + "'switch.switch': the pattern must end with 'node'");
  EXPECT_NE(slurm("s0.tux2", "switch.node")
                .find("they are those of node 'tux2', and this host is 'tux1'"),
            std::string::npos);
  EXPECT_NE(slurm("a b.tux1", "switch.node").find("the unit of level 'switch' 'a b'"),
            std::string::npos);
}

Settings with_levels(std::string_view text) {
  Settings out;
  EXPECT_TRUE(out.set(Setting::levels, text).ok());
  return out;
}

class OwnLocationTest : public testing::Test {
 protected:
  ~OwnLocationTest() override {
    unsetenv("SLURM_TOPOLOGY_ADDR");
    unsetenv("SLURM_TOPOLOGY_ADDR_PATTERN");
  }
  static void set_slurm(const std::string& node) {
    setenv("SLURM_TOPOLOGY_ADDR", ("core.leaf." + node).c_str(), 1);
    setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node", 1);
  }
};

TEST_F(OwnLocationTest, TheSettingGoesBeforeSlurm) {
  const std::string host = sys::host_name();
  set_slurm(host.substr(0, host.find('.')));
  const auto of_slurm = own_location(Settings());
  ASSERT_TRUE(of_slurm.ok());
  EXPECT_EQ(topo::to_text(of_slurm->location), "switch1=leaf,switch2=core");
  EXPECT_TRUE(of_slurm->is_launchers);
  const auto set = own_location(with_levels("rack=7"));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(topo::to_text(set->location), "rack=7");
  EXPECT_FALSE(set->is_launchers);
  EXPECT_TRUE(own_location(with_levels("none"))->location.empty());
}

// A job that runs without levels does not end because of a launcher's variables.
TEST_F(OwnLocationTest, VariablesOfAnotherNodeAreNotUsed) {
  set_slurm("another-node");
  const auto location = own_location(Settings());
  ASSERT_TRUE(location.ok());
  EXPECT_TRUE(location->location.empty());
}

TEST_F(OwnLocationTest, ASettingThatCannotBeReadIsQuoted) {
  const auto wrong = own_location(with_levels("r7"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().kind, ErrorKind::misuse);
  EXPECT_EQ(wrong.error().message,
            "UNISONO_LEVELS is 'r7': 'r7' is not LEVEL=UNIT; write rack=r12,zone=z3 or "
            "rack=r12+12us,zone=z3+28us");
}

}  // namespace
}  // namespace unisono::comm
