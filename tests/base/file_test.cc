// Files at paths that a stranger has prepared: what stands there decides nothing elsewhere.

#include "base/file.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/str.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;

constexpr uid_t stranger = 12'345;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = str(testing::TempDir(), "/files-XXXXXX");
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static struct stat info(const std::string& path) {
    struct stat found{};
    EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
    return found;
  }
  // Names in the folder, partial files among them.
  std::size_t files() const {
    const fs::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  // An error that ends so.
  template <class Outcome>
  static void expect_refused(const Outcome& outcome, const std::string& end) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_TRUE(outcome.error().message.ends_with(end)) << outcome.error().message;
  }

  std::string folder_;
};

TEST_F(Files, ANewFileIsTheOwnersAlone) {
  const mode_t before = umask(0);
  ASSERT_TRUE(write_whole(path("record"), "text").ok());
  umask(before);
  EXPECT_EQ(content(path("record")), "text");
  EXPECT_EQ(info(path("record")).st_mode & 07777, 0600U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, AFileThatOthersCouldReadIsReplacedByOneThatTheyCannot) {
  put(path("record"), "old");
  ASSERT_EQ(chmod(path("record").c_str(), 0666), 0);
  const int reads = open(path("record").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(write_whole(path("record"), "new").ok());
  EXPECT_EQ(info(path("record")).st_mode & 07777, 0600U);
  std::string seen(8, '\0');
  seen.resize(static_cast<std::size_t>(read(reads, seen.data(), seen.size())));
  close(reads);
  EXPECT_EQ(seen, "old");
}

TEST_F(Files, APlantedLinkIsReplacedAndItsTargetIsUntouched) {
  put(path("theirs"), "keep");
  ASSERT_EQ(symlink(path("theirs").c_str(), path("record").c_str()), 0);
  ASSERT_TRUE(write_whole(path("record"), "text").ok());
  EXPECT_EQ(content(path("theirs")), "keep");
  EXPECT_TRUE(S_ISREG(info(path("record")).st_mode));
}

TEST_F(Files, AFifoAndADeviceAreReplacedAndNothingWaitsForTheirReaders) {
  ASSERT_EQ(mkfifo(path("record").c_str(), 0666), 0);
  ASSERT_TRUE(write_whole(path("record"), "text").ok());
  EXPECT_EQ(content(path("record")), "text");
  if (mknod(path("device").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    GTEST_SKIP() << "this user may not make devices";
  ASSERT_TRUE(write_whole(path("device"), "text").ok());
  EXPECT_TRUE(S_ISREG(info(path("device")).st_mode));
}

TEST_F(Files, AFolderAtThePathIsAnErrorThatLeavesNothing) {
  ASSERT_EQ(mkdir(path("record").c_str(), 0700), 0);
  expect_refused(write_whole(path("record"), "text"), "record: Is a directory");
  expect_refused(write_whole(path("missing/record"), "text"), "missing: No such file or directory");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, AFolderThatIsAStrangersLinkIsRefusedAndOnesOwnIsFollowed) {
  ASSERT_EQ(mkdir(path("records").c_str(), 0700), 0);
  ASSERT_EQ(symlink("records", path("link").c_str()), 0);
  ASSERT_TRUE(write_whole(path("link/own"), "text").ok());
  ASSERT_TRUE(write_whole(path("link//slashes"), "text").ok());
  EXPECT_EQ(content(path("records/own")), "text");
  if (lchown(path("link").c_str(), stranger, stranger) != 0)
    GTEST_SKIP() << "only root can plant a link of another user";
  expect_refused(write_whole(path("link/theirs"), "text"),
                 str("link is a link that user ", stranger, " has made; it is not followed"));
  expect_refused(write_whole(path("link//theirs"), "text"), "it is not followed");
  EXPECT_FALSE(fs::exists(path("records/theirs")));
}

TEST_F(Files, LinksInACircleAreAnError) {
  ASSERT_EQ(symlink("b", path("a").c_str()), 0);
  ASSERT_EQ(symlink("a", path("b").c_str()), 0);
  expect_refused(write_whole(path("a/record"), "text"), "Too many levels of symbolic links");
}

TEST_F(Files, AFullDiskKeepsTheOldFileAndTheErrorSaysWhatIsMissing) {
  if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "only root can mount a small file system";
  put(path("record"), "old");
  const Status status = write_whole(path("record"), std::string(100'000, 'x'));
  const std::string kept = content(path("record"));
  const std::size_t left = files();
  umount(folder_.c_str());
  // 16 pages, of which the old file has one.
  expect_refused(status, str("record: No space left on device; ", 100'000 - 15 * 4096,
                             " bytes more are needed"));
  EXPECT_EQ(kept, "old");
  EXPECT_EQ(left, 1U);
}

TEST_F(Files, AFileBeyondTheLimitOfTheProcessKeepsTheOldOne) {
  put(path("record"), "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = write_whole(path("record"), std::string(10'000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  expect_refused(status, " bytes more are needed");
  EXPECT_TRUE(status.error().message.find("record: File too large; ") != std::string::npos);
  EXPECT_EQ(content(path("record")), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, AFileIsReadUpToItsBoundAndNoFurther) {
  put(path("file"), "12345678");
  EXPECT_EQ(*read_bounded(path("file"), 8), "12345678");
  expect_refused(read_bounded(path("file"), 7),
                 "file is larger than 7 bytes, the most it may have");
  put(path("file"), std::string(3'000'000, 'x'));
  EXPECT_EQ(read_bounded(path("file"), 3'000'000)->size(), 3'000'000U);
  expect_refused(read_bounded(path("file"), 2'999'999), "the most it may have");
  put(path("file"), "");
  EXPECT_EQ(*read_bounded(path("file"), 0), "");
}

TEST_F(Files, AFifoADeviceAndAFolderAreNotRead) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0666), 0);
  for (const std::string& given : {path("fifo"), folder_, std::string("/dev/zero")})
    expect_refused(read_bounded(given, 8), given + " is not a regular file");
  expect_refused(read_bounded(path("none"), 8), "none: No such file or directory");
}

TEST_F(Files, AFileOfTheOwnerAloneIsRefusedWhereOthersCanReadIt) {
  put(path("secret"), "s");
  ASSERT_EQ(chmod(path("secret").c_str(), 0600), 0);
  EXPECT_EQ(*read_bounded(path("secret"), 8, Readers::owner), "s");
  ASSERT_EQ(chmod(path("secret").c_str(), 0640), 0);
  expect_refused(read_bounded(path("secret"), 8, Readers::owner), "(chmod 600)");
}

}  // namespace
}  // namespace unisono
