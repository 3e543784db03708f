// Records reach files: on failure and by signal.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/settings.h"
#include "base/str.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using namespace std::chrono_literals;

// The handler is installed with the first communicator of the process, so the settings come first.
class DumpSettings : public testing::Environment {
 public:
  void SetUp() override {
    directory = testing::TempDir() + str("unisono-dumps-", getpid());
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(settings().set(Setting::dump_directory, directory).ok());
    ASSERT_TRUE(settings().set(Setting::dump_signal, str(SIGUSR2)).ok());
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  static inline std::string directory;
};
const auto* const environment = testing::AddGlobalTestEnvironment(new DumpSettings);

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string path_of(const Communicator& world) {
  return str(DumpSettings::directory, "/unisono-", world.id(), "-", world.rank(), ".json");
}

TEST(Dump, OnFailureTellsWhatTheCallWaitedFor) {
  test::run_ranks({.ranks = 2, .timeout = 200ms}, [](Communicator& world) {
    if (world.rank() == 1) return;
    ASSERT_FALSE(world.barrier().ok());
    auto record = json::parse(text_of(path_of(world)));
    ASSERT_TRUE(record.ok()) << record.error().describe();
    const json::Value& entry = record->find("entries")->array().back();
    EXPECT_EQ(entry.find("state")->string(), "failed");
    EXPECT_EQ(entry.find("collective")->string(), "barrier");
    ASSERT_NE(entry.find("waiting"), nullptr);
    EXPECT_EQ(entry.find("waiting")->find("peer")->integer(), 1);
  });
}

TEST(Dump, BySignalWhileACallRuns) {
  test::run_ranks({.ranks = 2}, [](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    if (world.rank() == 1) return;
    ASSERT_EQ(raise(SIGUSR2), 0);
    const auto until = std::chrono::steady_clock::now() + 20s;
    std::string text;
    while (text.find("\"completed\"") == std::string::npos &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
      text = text_of(path_of(world));
    }
    EXPECT_NE(text.find("\"collective\": \"barrier\""), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace unisono
