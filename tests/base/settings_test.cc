#include "base/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace unisono {
namespace {

// Sets a variable and takes it back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Settings, EveryRowIsCompleteAndItsDefaultReads) {
  std::set<std::string_view> variables;
  Settings settings = Settings::from_environment();
  for (const SettingRow& row : setting_rows()) {
    // But for what programs written for NCCL set.
    EXPECT_TRUE(row.variable.starts_with("UNISONO_") || row.variable == "NCCL_COMM_ID")
        << row.variable;
    EXPECT_TRUE(variables.insert(row.variable).second) << row.variable;
    EXPECT_TRUE(row.meaning.ends_with(".")) << row.variable;
    const auto status = settings.set(row.setting, row.default_text);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(Settings, HoldDefaultsUntilSet) {
  Settings settings = Settings::from_environment();
  EXPECT_EQ(settings.bytes(Setting::ll_slot_bytes), 32768U);
  EXPECT_FALSE(settings.is_set(Setting::ll_slot_bytes));
  ASSERT_TRUE(settings.set(Setting::ll_slot_bytes, "1MiB").ok());
  EXPECT_EQ(settings.bytes(Setting::ll_slot_bytes), 1048576U);
  EXPECT_EQ(settings.text(Setting::ll_slot_bytes), "1MiB");
  EXPECT_TRUE(settings.is_set(Setting::ll_slot_bytes));
}

TEST(Settings, ReadEachType) {
  Settings settings = Settings::from_environment();
  ASSERT_TRUE(settings.set("UNISONO_TIMEOUT", "5ms").ok());
  EXPECT_EQ(settings.duration_ns(Setting::timeout), 5000000);
  ASSERT_TRUE(settings.set("UNISONO_CHANNELS", "-3").ok());
  EXPECT_EQ(settings.integer(Setting::channels), -3);
  for (const char* yes : {"1", "true", "yes", "on"}) {
    ASSERT_TRUE(settings.set("UNISONO_CHECK_CALLS", yes).ok());
    EXPECT_TRUE(settings.boolean(Setting::check_calls)) << yes;
  }
  ASSERT_TRUE(settings.set("UNISONO_CHECK_CALLS", "off").ok());
  EXPECT_FALSE(settings.boolean(Setting::check_calls));
}

TEST(Settings, RefuseWhatDoesNotReadAndKeepTheValue) {
  Settings settings = Settings::from_environment();
  const Status failed = settings.set("UNISONO_SLOTS", "8x");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "UNISONO_SLOTS: cannot read '8x' as a whole number");
  EXPECT_EQ(settings.integer(Setting::simple_slots), 8);
  EXPECT_FALSE(settings.set("UNISONO_TIMEOUT", "soon").ok());
  EXPECT_FALSE(settings.set("UNISONO_ZERO_COPY", "maybe").ok());
}

TEST(Settings, OfLibrariesAboveAreReadLikeThese) {
  const auto read = [] { return read_setting("ABOVE_PATIENCE", SettingType::duration, "2s"); };
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(read()->text, "2s");
  EXPECT_EQ(read()->number, 2000000000);
  const Variable set("ABOVE_PATIENCE", "5ms");
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(read()->number, 5000000);
  EXPECT_TRUE(read()->is_number);
  const auto boolean = read_setting("ABOVE_PATIENCE", SettingType::boolean, "0");
  ASSERT_FALSE(boolean.ok());
  EXPECT_EQ(boolean.error().message,
            "ABOVE_PATIENCE: cannot read '5ms' as yes or no; write 1 or 0");
}

TEST(Settings, UnknownNamesGetTheNearOnes) {
  Settings settings = Settings::from_environment();
  const Status failed = settings.set(std::string("UNISONO_") + "TIMOUT", "1s");
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("; did you mean UNISONO_TIMEOUT"), std::string::npos)
      << failed.error().message;
}

TEST(Settings, AreReadFromTheEnvironmentAndComplainWhenChecked) {
  const Variable timeout("UNISONO_TIMEOUT", "7s");
  const Variable slots("UNISONO_SLOTS", "many");
  const Settings settings = Settings::from_environment();
  EXPECT_EQ(settings.duration_ns(Setting::timeout), 7000000000);
  EXPECT_EQ(settings.integer(Setting::simple_slots), 8);
  ASSERT_FALSE(settings.check().ok());
  EXPECT_EQ(settings.check().error().message,
            "UNISONO_SLOTS: cannot read 'many' as a whole number");
}

TEST(Environment, WhatNothingReadsIsToldWithTheNearSettings) {
  const auto told = [](const std::string& name) {
    for (const std::string& one : unknown_variables())
      if (one.starts_with(name + " ")) return one;
    return std::string();
  };
  const Variable misspelt("UNISONO_TIMOUT", "7s");
  const Variable known("UNISONO_TIMEOUT", "7s");
  const Variable far("UNISONO_QQQQQQQQQQQQ", "1");
  const Variable of_tests("UNISONO_UPDATE_GOLDEN", "1");
  const Variable of_a_leaf("UNISONO_NCCL_HOST_MEMORY", "1");
  const Variable empty("UNISONO_CHANELS", "");
  EXPECT_TRUE(told("UNISONO_TIMOUT")
                  .starts_with("UNISONO_TIMOUT is set, and there is no such setting; did you mean "
                               "UNISONO_TIMEOUT"))
      << told("UNISONO_TIMOUT");
  EXPECT_TRUE(told("UNISONO_TIMEOUT").empty());
  EXPECT_EQ(told("UNISONO_QQQQQQQQQQQQ"),
            "UNISONO_QQQQQQQQQQQQ is set, and there is no such setting");
  EXPECT_TRUE(told("UNISONO_UPDATE_GOLDEN").empty());
  EXPECT_TRUE(told("UNISONO_NCCL_HOST_MEMORY").empty());
  EXPECT_TRUE(told("UNISONO_CHANELS").empty());
}

TEST(Environment, EveryLauncherLeavesATrace) {
  for (const char* name : {"RANK", "MASTER_PORT", "LOCAL_RANK", "SLURM_JOB_ID", "PMI_RANK",
                           "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    const Variable one(name, "1");
    const std::vector<std::string> traces = launcher_traces();
    EXPECT_NE(std::ranges::find(traces, name), traces.end()) << name;
  }
  const Variable other("RANKING", "1");
  const std::vector<std::string> traces = launcher_traces();
  EXPECT_EQ(std::ranges::find(traces, "RANKING"), traces.end());
}

}  // namespace
}  // namespace unisono
