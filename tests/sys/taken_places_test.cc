// Places that another user, or other programs, took first. In processes with namespaces of their
// own, which only root can make.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "apart.h"
#include "base/str.h"
#include "sys/real_world.h"
#include "sys/user_secret.h"

namespace unisono::sys {
namespace {

constexpr uid_t stranger = 12'345;

bool has_empty(const char* path) { return mount("tmpfs", path, "tmpfs", 0, "mode=1777") == 0; }

TEST(TakenPlaces, AStrangersFolderInTmpStopsNobodyWhoHasAnother) {
  const std::string said = said_apart(CLONE_NEWNS, []() -> std::string {
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !has_empty("/tmp") ||
        !has_empty("/run"))
      return "no namespace";
    const std::string usual = str("/tmp/unisono-", geteuid());
    std::string said = user_directory() == usual ? "" : "not the usual one; ";
    mkdir(usual.c_str(), 0777);
    if (chown(usual.c_str(), stranger, stranger) != 0) return "no namespace";
    const auto refused = user_secret(user_directory());
    said += refused.ok() ? "a stranger's folder was used; " : "";
    mkdir("/run/user", 0755);
    const std::string runtime = str("/run/user/", geteuid());
    mkdir(runtime.c_str(), 0700);
    const auto secret = user_secret(user_directory());
    said += secret.ok() ? user_directory() : secret.error().message;
    if (chown(runtime.c_str(), stranger, stranger) != 0 || user_directory() != usual)
      said += "; a stranger's folder in /run";
    return said;
  });
  if (said == "no namespace") GTEST_SKIP() << said;
  EXPECT_EQ(said, str("/run/user/", geteuid(), "/unisono"));
}

TEST(TakenPlaces, AMachineWithoutFreePortsSaysSo) {
  const std::string said = said_apart(CLONE_NEWNET, []() -> std::string {
    {
      std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
      range << "40000 40001" << std::flush;
      if (!range.good()) return "no namespace";
    }
    auto world = RealWorld::create();
    if (!world.ok()) return world.error().message;
    std::vector<std::unique_ptr<Listener>> held;
    for (int i = 0; i < 3; ++i) {
      auto listener = (*world)->listen({.host = "0.0.0.0", .port = 0});
      if (!listener.ok()) return str(i, ": ", listener.error().message);
      held.push_back(std::move(*listener));
    }
    return "it listens on more ports than there are";
  });
  if (said == "no namespace") GTEST_SKIP() << said;
  EXPECT_EQ(said,
            "2: this machine has no free port left on 0.0.0.0; end programs that hold many "
            "connections, or widen net.ipv4.ip_local_port_range (sysctl)");
}

}  // namespace
}  // namespace unisono::sys
