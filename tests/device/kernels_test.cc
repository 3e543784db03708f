// What the compiler made of the kernels, against what they may use.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "device/image.h"
#include "device/program.h"

namespace unisono::device {
namespace {

struct Use {
  int registers = 0;
  int stack_bytes = 0;
  int spill_bytes = 0;  // stores and loads
};

// A budget is what was there when it was last looked at: with 512 threads a block has 128 registers
// for each, and a launch starts later the more of the stack it must lay out. Compilers differ by a
// few; a kernel that outgrows this has changed.
const std::map<std::string, Use> budget{
    {"unisono_interpret", {.registers = 128, .stack_bytes = 208, .spill_bytes = 128}},
    {"unisono_interpret_tokens", {.registers = 128, .stack_bytes = 208, .spill_bytes = 136}},
    {"unisono_ll_take_any_2", {.registers = 72, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_take_any_4", {.registers = 88, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_take_any_8", {.registers = 128, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_take_plain_2", {.registers = 56, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_take_plain_4", {.registers = 72, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_any_2", {.registers = 72, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_any_4", {.registers = 88, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_any_8", {.registers = 104, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_float16_2", {.registers = 56, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_float16_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_bfloat16_2", {.registers = 56, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_bfloat16_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_float32_2", {.registers = 56, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_combine_float32_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_two_shot_any_4", {.registers = 80, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_two_shot_any_8", {.registers = 128, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_two_shot_float16_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_two_shot_bfloat16_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll_two_shot_float32_4", {.registers = 64, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_any_2", {.registers = 120, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_any_4", {.registers = 144, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_any_8", {.registers = 168, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_float16_2", {.registers = 104, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_float16_4", {.registers = 112, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_bfloat16_2", {.registers = 104, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_bfloat16_4", {.registers = 112, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_float32_2", {.registers = 104, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_ll128_float32_4", {.registers = 112, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_zero_copy_any_2", {.registers = 96, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_zero_copy_any_4", {.registers = 128, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_zero_copy_any_8", {.registers = 160, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_bulk_any_2", {.registers = 127, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_bulk_any_4", {.registers = 138, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_bulk_any_8", {.registers = 164, .stack_bytes = 112, .spill_bytes = 0}},
    {"unisono_bulk_float16_2", {.registers = 100, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_bulk_bfloat16_2", {.registers = 100, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_bulk_float32_2", {.registers = 100, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_bulk_float32_4", {.registers = 115, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_messages", {.registers = 128, .stack_bytes = 16, .spill_bytes = 16}},
    {"unisono_messages_small", {.registers = 128, .stack_bytes = 16, .spill_bytes = 16}},
    {"unisono_ll128_messages", {.registers = 96, .stack_bytes = 0, .spill_bytes = 0}},
    {"unisono_divide", {.registers = 40, .stack_bytes = 0, .spill_bytes = 0}},
};

// What ptxas told for sm_90: an entry's lines are "Compiling entry function 'name' for 'sm_90'",
// "N bytes stack frame, N bytes spill stores, N bytes spill loads", "Used N registers".
std::map<std::string, Use> read_uses(std::istream& log) {
  const std::regex entry("Compiling entry function '(\\w+)' for 'sm_(\\d+)'");
  const std::regex stack("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill");
  const std::regex used("Used (\\d+) registers");
  std::map<std::string, Use> uses;
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
  std::ifstream log(UNISONO_BINARY_DIR "/kernels/resources.txt");
  ASSERT_TRUE(log) << "the compiler's report is not there";
  const auto uses = read_uses(log);
  for (const auto& [kernel, most] : budget) {
    SCOPED_TRACE(kernel);
    ASSERT_TRUE(uses.contains(kernel));
    const Use& use = uses.at(kernel);
    EXPECT_LE(use.registers, most.registers);
    EXPECT_LE(use.stack_bytes, most.stack_bytes);
    EXPECT_LE(use.spill_bytes, most.spill_bytes);
  }
  EXPECT_EQ(uses.size(), budget.size()) << "a kernel has no budget";
}

}  // namespace
}  // namespace unisono::device
