// Which secret a job has, and who else can find it.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/quiet.h"
#include "support/real_ranks.h"
#include "support/settings.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

using test::settings_with;

Error outcome_at(const std::string& rendezvous, int rank, bool insecure = false) {
  BootstrapOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  options.timeout_ns = second_ns / 10;
  options.insecure = insecure;
  const auto result = bootstrap(options, SelfDescription{});
  return result.ok() ? Error{} : result.error();
}

// 192.0.2.0/24 is nobody's.
constexpr const char* elsewhere = "tcp://192.0.2.1:4000";

TEST(Secret, AJobThatOthersReachIsNotStartedWithoutOne) {
  for (const int rank : {0, 1}) {
    const Error error = outcome_at(elsewhere, rank);
    EXPECT_EQ(error.kind, ErrorKind::misuse);
    for (const char* way : {"UNISONO_SECRET_FILE", "UNISONO_SECRET", "UNISONO_INSECURE=1"})
      EXPECT_NE(error.message.find(way), std::string::npos) << error.message;
  }
  for (const int rank : {0, 1})
    EXPECT_NE(outcome_at(elsewhere, rank, true).kind, ErrorKind::misuse);
}

TEST(Secret, LoopbackNeedsNone) {
  for (const char* here : {"tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1"})
    EXPECT_NE(outcome_at(here, 1).kind, ErrorKind::misuse) << here;
}

TEST(Secret, TheFileGoesBeforeTheVariable) {
  char name[] = "/tmp/unisono-test-XXXXXX";
  const std::string path = std::string(mkdtemp(name)) + "/secret";
  std::ofstream(path) << "of the file\n";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(*secret_from_settings(settings_with({{Setting::secret, "of the variable"}})),
            "of the variable");
  const Settings both =
      settings_with({{Setting::secret, "of the variable"}, {Setting::secret_file, path}});
  EXPECT_EQ(*secret_from_settings(both), "of the file");
  EXPECT_EQ(*secret_from_settings(both), "of the file");
  chmod(path.c_str(), 0640);
  EXPECT_FALSE(secret_from_settings(both).ok());
  chmod(path.c_str(), 0600);
  std::ofstream(path) << "\n";
  EXPECT_FALSE(secret_from_settings(both).ok());
  std::filesystem::remove_all(name);
}

TEST(Secret, HowFramesAreProtectedIsReadFromOneSetting) {
  BootstrapOptions options;
  const auto protection_for = [&](const std::string& value) {
    EXPECT_TRUE(fill_from_settings(settings_with({{Setting::wire, value}}), options).ok());
    return options.protection;
  };
  EXPECT_EQ(protection_for(""), sys::Protection::authenticate);
  EXPECT_EQ(protection_for("none"), sys::Protection::none);
  EXPECT_EQ(protection_for("auth"), sys::Protection::authenticate);
  EXPECT_EQ(protection_for("encrypt"), sys::Protection::encrypt);
  EXPECT_FALSE(fill_from_settings(settings_with({{Setting::wire, "rot13"}}), options).ok());
}

TEST(Secret, WhatAProcessHasOverwrittenIsNoSecretForItsChildren) {
  ::setenv("UNISONO_SECRET", "********", 1);
  const Settings of_child = Settings::from_environment();
  ::unsetenv("UNISONO_SECRET");
  EXPECT_TRUE(of_child.secret_was_taken());
  EXPECT_EQ(of_child.text(Setting::secret), "");
  EXPECT_FALSE(Settings::from_environment().secret_was_taken());
}

int look_into_the_environment() {
  const bool is_read = environment_settings().text(Setting::secret) == "do not tell";
  std::ifstream file("/proc/self/environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  if (environment.find("UNISONO_SECRET=") == std::string::npos) return 2;
  if (environment.find("do not tell") != std::string::npos) return 3;
  if (std::string(std::getenv("UNISONO_SECRET")) != "***********") return 4;
  // A second job of this process.
  return is_read && *secret_from_settings(environment_settings()) == "do not tell" ? 0 : 5;
}

TEST(SecretDeathTest, IsNotLeftInTheEnvironment) {
  // The child is started anew, with the variable among what it starts with.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("UNISONO_SECRET", "do not tell", 0);
  EXPECT_EXIT(std::exit(look_into_the_environment()), testing::ExitedWithCode(0), "");
  ::unsetenv("UNISONO_SECRET");
}

TEST(Secret, AllRanksGetTheSameKeyWhichNothingTells) {
  std::vector<Key> keys;
  for (int job = 0; job < 2; ++job) {
    const auto results = bootstrap_all(3);
    for (const auto& result : results) {
      ASSERT_TRUE(result.ok()) << result.error().describe();
      EXPECT_EQ(result.value().key, results[0].value().key);
    }
    keys.push_back(results[0].value().key);
  }
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_NE(keys[0], Key{});
}

}  // namespace
}  // namespace unisono::comm
