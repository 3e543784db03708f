// Settings for a test.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "base/settings.h"

namespace unisono::test {

// This process's, with these values instead.
inline Settings settings_with(std::initializer_list<std::pair<Setting, std::string>> values) {
  Settings out = environment_settings();
  for (const auto& [setting, value] : values) EXPECT_TRUE(out.set(setting, value).ok());
  return out;
}

}  // namespace unisono::test
