// What shared memory leaves behind, whom it lets in, and how it tells the dead from the living.

#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <iterator>
#include <vector>

#include "conformance/harness.h"
#include "sys/process.h"
#include "sys/shared_memory.h"
#include "transport/shm/segment.h"
#include "transport/shm/transport.h"

namespace unisono::test {
namespace {

using sys::SharedMemory;

constexpr Geometry geometry{.region_bytes = 4096, .signals = 1};
const Factory shm{"shm", transport::shm::make_transport, true};

// The segment of ranks 0 and 1, if it has a name.
std::vector<std::string> segments_of(const std::string& job) {
  auto names = SharedMemory::names(transport::shm::segment_name(Job::key(job), {}, 0, 1).substr(1));
  EXPECT_LE(names.size(), 1u);
  return names;
}

// A process that runs `body` and then waits to be killed.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      [[maybe_unused]] auto kept = body();
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
  }
  void kill_and_reap() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  ~Child() { kill_and_reap(); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(Shm, NamesAreGoneOnceBothEndsHaveMetAndAfterOneEndAlone) {
  const std::string name = fresh_job();
  Job job(shm, 2, name);
  {
    auto alone = must(job.connect(0, 1, geometry));
    EXPECT_EQ(segments_of(name).size(), 1u);
  }
  EXPECT_TRUE(segments_of(name).empty());
  Pair pair(job, geometry);
  EXPECT_TRUE(segments_of(name).empty());
}

TEST(Shm, WhatAKilledProcessLeftIsRemovedByTheNextTransport) {
  const std::string name = fresh_job();
  Child child([&] {
    auto job = std::make_unique<Job>(shm, 2, name);
    auto alone = must(job->connect(0, 1, geometry));
    return std::pair(std::move(job), std::move(alone));
  });
  Job alive(shm, 2);
  EXPECT_EQ(segments_of(name).size(), 1u) << "a living process's segment was taken away";
  child.kill_and_reap();
  EXPECT_EQ(segments_of(name).size(), 1u);
  Job next(shm, 2);
  EXPECT_TRUE(segments_of(name).empty());
}

TEST(Shm, ARestartedRankFindsNoEndOfItsFormerLife) {
  const std::string name = fresh_job();
  Job job(shm, 2, name);
  Child child([&] {
    auto former = std::make_unique<Job>(shm, 2, name);
    auto alone = must(former->connect(0, 1, geometry));
    return std::pair(std::move(former), std::move(alone));
  });
  child.kill_and_reap();
  Pair pair(job, geometry);
  EXPECT_TRUE(put(*pair.a, "x", 1, 0, {0, 1}));
  EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1));
}

TEST(Shm, SegmentsOfOthersAreRefused) {
  const std::string name = fresh_job();
  Job job(shm, 2, name);
  auto alone = must(job.connect(0, 1, geometry));
  const auto names = segments_of(name);
  ASSERT_EQ(names.size(), 1u);
  // As if another user had made it with open permissions, to read along.
  ASSERT_EQ(chmod(str("/dev/shm", names[0]).c_str(), 0666), 0);
  const auto refused = SharedMemory::open(names[0], 4096, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::environment);
  EXPECT_NE(refused.error().message.find(names[0]), std::string::npos);
}

// Address space costs nothing; memory that cannot be had is an error before it is touched. No more
// address space than this takes: sanitizers leave programs little of it.
TEST(Shm, MoreThanThereIsMemoryForIsRefusedInsteadOfKillingLater) {
  const std::string name = fresh_job();
  Job job(shm, 2, name);
  struct statvfs filesystem{};
  ASSERT_EQ(statvfs("/dev/shm", &filesystem), 0);
  if (filesystem.f_blocks == 0) GTEST_SKIP() << "/dev/shm has no limit";
  const std::size_t much = std::bit_ceil(4 * filesystem.f_blocks * filesystem.f_frsize);
  Pair pair(job, {.region_bytes = much, .signals = 1});
  for (const auto& refused : {pair.a->reserve(0, much), pair.b->reserve_at_peer(4096, much / 2)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::environment);
    for (const char* part :
         {"/dev/shm", "too few", "--shm-size", "UNISONO_TRANSPORT=socket", "rank"})
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  const auto reserved = pair.a->reserve_at_peer(much - 8192, 8192);
  ASSERT_TRUE(reserved.ok()) << reserved.error().describe();
  pair.b->region()[much - 8192] = std::byte{1};
}

TEST(Shm, EndsInOneProcessShareOneMapping) {
  Job job(shm, 2);
  Pair pair(job, geometry);
  EXPECT_EQ(pair.a->host_link()->region, pair.b->region());
  EXPECT_EQ(pair.b->host_link()->region, pair.a->region());
  EXPECT_TRUE(pair.a->can_read_peer());
}

TEST(ProcessWatch, TellsTheDeadFromTheLiving) {
  const sys::ProcessIdentity own = sys::this_process();
  EXPECT_EQ(own.pid, getpid());
  EXPECT_GT(own.start_time, 0u);
  EXPECT_TRUE(sys::ProcessWatch(own).alive());

  Child child([] { return 0; });
  sys::ProcessIdentity other = own;
  other.pid = child.pid();
  // An earlier life of the same id; this process may have begun in the child's own hundredth of a
  // second.
  --other.start_time;
  EXPECT_FALSE(sys::ProcessWatch(other).alive());

  kill(child.pid(), SIGSTOP);
  int status = 0;
  waitpid(child.pid(), &status, WUNTRACED);
  kill(child.pid(), SIGCONT);
  sys::ProcessIdentity elsewhere = other;
  elsewhere.pid_namespace = own.pid_namespace + 1;
  EXPECT_TRUE(sys::ProcessWatch(elsewhere).alive()) << "who cannot be watched counts as alive";
}

TEST(ProcessWatch, SharesOneDescriptorWithAllThatWatchTheProcess) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator begin("/proc/self/fd");
    return std::distance(begin, std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  {
    const std::vector<sys::ProcessWatch> watches(5, sys::ProcessWatch(sys::this_process()));
    for (const sys::ProcessWatch& watch : watches) EXPECT_TRUE(watch.alive());
    const sys::ProcessWatch another(sys::this_process());
    EXPECT_EQ(descriptors(), before + 1);
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(ProcessWatch, SeesAProcessEndThatNobodyHasWaitedFor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const sys::ProcessIdentity own = sys::this_process();
    (void)!write(ends[1], &own, sizeof own);
    for (;;) pause();
  }
  sys::ProcessIdentity identity;
  ASSERT_EQ(read(ends[0], &identity, sizeof identity), static_cast<ssize_t>(sizeof identity));
  const sys::ProcessWatch watch(identity);
  EXPECT_TRUE(watch.alive());
  kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !watch.alive(); }));
  EXPECT_FALSE(sys::ProcessWatch(identity).alive());
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(watch.alive());
}

TEST(SharedMemoryGrowth, NeverShrinksWhatAnotherHasMapped) {
  const std::string name = str("/unisonotest-", fresh_job());
  auto large = SharedMemory::open(name, 1 << 20, 0);
  ASSERT_TRUE(large.ok()) << large.error().describe();
  auto small = SharedMemory::open(name, 4096, 0);
  ASSERT_TRUE(small.ok());
  large->data()[(1 << 20) - 1] = std::byte{5};
  small->data()[0] = std::byte{6};
  EXPECT_EQ(large->data()[0], std::byte{6});
  // The last page of each, and the first.
  EXPECT_LE(sys::resident_bytes(large->data(), large->bytes()), 3 * sys::page_bytes());
  SharedMemory::unlink(name);
}

}  // namespace
}  // namespace unisono::test
