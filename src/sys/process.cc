#include "sys/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/str.h"

namespace unisono::sys {
namespace {

struct ProcessStat {
  char state = 0;
  std::uint64_t start_time = 0;
};

// /proc/PID/stat is "pid (name) state ..."; the name may hold anything, also ") ", so the fields
// are counted from the last parenthesis. State is field 3, the start time field 22 (proc(5)).
std::optional<ProcessStat> parse_stat(std::string_view text) {
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(name_end + 2);
  ProcessStat stat{.state = text.front()};
  for (int field = 3; field < 22; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    text.remove_prefix(space + 1);
  }
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), stat.start_time);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return stat;
}

// errno is ENOENT or ESRCH where there is no such process; else it could not be read.
std::optional<ProcessStat> read_stat(std::int32_t pid) {
  errno = 0;
  const int fd = open(str("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char buffer[1024];
  const ssize_t got = read(fd, buffer, sizeof buffer);
  const int why = errno;
  close(fd);
  errno = why;
  if (got <= 0) return std::nullopt;
  return parse_stat({buffer, static_cast<std::size_t>(got)});
}

bool has_ended(const ProcessIdentity& identity) {
  const auto stat = read_stat(identity.pid);
  if (!stat) {
    if (errno == ENOENT || errno == ESRCH) return true;
    return kill(identity.pid, 0) != 0 && errno == ESRCH;
  }
  return stat->start_time != identity.start_time || stat->state == 'Z' || stat->state == 'X';
}

ProcessIdentity identify() {
  ProcessIdentity identity{.pid = getpid()};
  if (const auto stat = read_stat(identity.pid)) identity.start_time = stat->start_time;
  struct stat name_space{};
  if (stat("/proc/self/ns/pid", &name_space) == 0) identity.pid_namespace = name_space.st_ino;
  return identity;
}

}  // namespace

ProcessIdentity this_process() {
  static std::mutex mutex;
  static ProcessIdentity known;
  const std::lock_guard lock(mutex);
  // A forked process has another one; one that could not be read may be readable later.
  if (known.pid != getpid() || known.start_time == 0) known = identify();
  return known;
}

Result<int> copy_descriptor(const ProcessIdentity& process, int descriptor) {
  const auto failed = [&](int error) {
    return system_error(str("copying descriptor ", descriptor, " of process ", process.pid), error);
  };
  const ProcessIdentity self = this_process();
  if (process == self) {
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return failed(errno);
    return copy;
  }
  if (process.pid_namespace != self.pid_namespace) return failed(ESRCH);
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (pidfd < 0) return failed(errno);
  const auto copy = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, descriptor, 0));
  const int error = errno;
  close(pidfd);
  if (copy < 0) return failed(error);
  return copy;
}

class ProcessWatch::Descriptor {
 public:
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() { close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int number;
};

std::shared_ptr<const ProcessWatch::Descriptor> ProcessWatch::descriptor_of(
    const ProcessIdentity& identity) {
  using Known =
      std::map<std::tuple<pid_t, std::uint64_t, std::uint64_t>, std::weak_ptr<const Descriptor>>;
  static std::mutex mutex;
  static auto* const known = new Known;  // never destroyed: watches may outlive static objects
  const std::lock_guard lock(mutex);
  std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
  auto& shared = (*known)[{identity.pid, identity.start_time, identity.pid_namespace}];
  if (auto open = shared.lock()) return open;
  const auto number = static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0));
  if (number < 0) return nullptr;
  auto opened = std::make_shared<const Descriptor>(number);
  shared = opened;
  return opened;
}

ProcessWatch::ProcessWatch(const ProcessIdentity& identity) : identity_(identity) {
  if (identity.pid_namespace != this_process().pid_namespace) return;
  watched_ = true;
  pidfd_ = descriptor_of(identity);
  // The id may have passed to another process before the descriptor was opened; afterwards it
  // cannot.
  dead_at_start_ = has_ended(identity);
}

bool ProcessWatch::alive() const {
  if (!watched_) return true;
  if (dead_at_start_) return false;
  if (!pidfd_) return !has_ended(identity_);
  pollfd ended{.fd = pidfd_->number, .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 0;
}

std::optional<std::size_t> ProcessWatch::first_ended(std::span<const ProcessWatch> watches) {
  std::vector<pollfd> polled(watches.size(), {.fd = -1, .events = POLLIN, .revents = 0});
  for (std::size_t i = 0; i < watches.size(); ++i) {
    if (watches[i].pidfd_ && !watches[i].dead_at_start_)
      polled[i].fd = watches[i].pidfd_->number;
    else if (!watches[i].alive())
      return i;
  }
  if (poll(polled.data(), polled.size(), 0) <= 0) return std::nullopt;
  const auto ended =
      std::ranges::find_if(polled, [](const pollfd& one) { return one.revents != 0; });
  return static_cast<std::size_t>(ended - polled.begin());
}

}  // namespace unisono::sys
