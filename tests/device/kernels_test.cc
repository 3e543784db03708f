// What the compiler made of the kernels, against what they may use.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "device/image.h"
#include "device/kernel_list.h"
#include "support/folders.h"

namespace unisono::device {
namespace {

// What ptxas told for sm_90: an entry's lines are "Compiling entry function 'name' for 'sm_90'",
// "N bytes stack frame, N bytes spill stores, N bytes spill loads", "Used N registers".
std::map<std::string, KernelUse> read_uses(std::istream& log) {
  const std::regex entry("Compiling entry function '(\\w+)' for 'sm_(\\d+)'");
  const std::regex stack("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill");
  const std::regex used("Used (\\d+) registers");
  std::map<std::string, KernelUse> uses;
  std::string line;
  std::string kernel;
  bool has_stack = false;  // functions that the kernel calls follow it
  for (std::smatch found; std::getline(log, line);) {
    if (std::regex_search(line, found, entry)) {
      kernel = found[2] == "90" ? found[1].str() : "";
      has_stack = false;
    } else if (!kernel.empty() && !has_stack && std::regex_search(line, found, stack)) {
      uses[kernel].stack_bytes = std::stoi(found[1]);
      uses[kernel].spill_bytes = std::stoi(found[2]) + std::stoi(found[3]);
      has_stack = true;
    } else if (!kernel.empty() && std::regex_search(line, found, used)) {
      uses[kernel].registers = std::stoi(found[1]);
    }
  }
  return uses;
}

TEST(Kernels, ReadsWhatTheCompilerTells) {
  std::istringstream log(
      "ptxas info    : Compiling entry function 'unisono_divide' for 'sm_80'\n"
      "    9 bytes stack frame, 9 bytes spill stores, 9 bytes spill loads\n"
      "ptxas info    : Compiling entry function 'unisono_divide' for 'sm_90'\n"
      "    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 0 barriers\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n");
  const auto uses = read_uses(log);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses.at("unisono_divide").registers, 32);
  EXPECT_EQ(uses.at("unisono_divide").stack_bytes, 8);
  EXPECT_EQ(uses.at("unisono_divide").spill_bytes, 6);
}

TEST(Kernels, StayWithinTheirBudgetOfRegistersAndSpills) {
  if (kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  std::ifstream log(test::build_folder() + "/kernels/resources.txt");
  ASSERT_TRUE(log) << "the compiler's report is not there";
  const auto uses = read_uses(log);
  std::set<std::string_view> listed;
  for (const auto& [name, family, data, ranks, most] : kernel_rows) {
    SCOPED_TRACE(name);
    listed.insert(name);
    const auto use = uses.find(name);
    if (use == uses.end()) {
      ADD_FAILURE() << "it has a row in src/device/kernel_list.h and no body";
      continue;
    }
    EXPECT_LE(use->second.registers, most.registers);
    EXPECT_LE(use->second.stack_bytes, most.stack_bytes);
    EXPECT_LE(use->second.spill_bytes, most.spill_bytes);
  }
  for (const auto& [name, use] : uses)
    EXPECT_TRUE(listed.contains(name)) << name << " has no row in src/device/kernel_list.h";
}

}  // namespace
}  // namespace unisono::device
