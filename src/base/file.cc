#include "base/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"

namespace unisono {
namespace {

constexpr int most_links = 40;  // as many as the kernel follows
constexpr std::size_t block_bytes = std::size_t{1} << 20;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return value_; }
  bool is_open() const { return value_ >= 0; }

 private:
  int value_;
};

// Links are followed one at a time, because only a link's own owner says who planted it.
Result<Descriptor> open_folder(std::string path) {
  for (int links = 0; links < most_links; ++links) {
    // With a slash at its end, the kernel would follow the link.
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    Descriptor folder(
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (folder.is_open()) return folder;
    if (errno != ELOOP && errno != ENOTDIR) return system_error(str("cannot open ", path), errno);
    const int why = errno;
    const Descriptor link(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info{};
    if (!link.is_open() || fstat(link.get(), &info) != 0 || !S_ISLNK(info.st_mode))
      return system_error(str("cannot open ", path), why);
    if (info.st_uid != geteuid() && info.st_uid != 0)
      return environment_error(path, " is a link that user ", info.st_uid,
                               " has made; it is not followed");
    std::array<char, PATH_MAX> target{};
    const ssize_t bytes = readlinkat(link.get(), "", target.data(), target.size());
    if (bytes < 0) return system_error(str("cannot read the link ", path), errno);
    std::string next(target.data(), static_cast<std::size_t>(bytes));
    if (!next.starts_with('/')) next = str(path.substr(0, path.rfind('/') + 1), next);
    path = std::move(next);
  }
  return system_error(str("cannot open ", path), ELOOP);
}

std::string random_name() {
  std::uint64_t number = 0;
  // 8 bytes are always there at once, and no signal interrupts that.
  static_cast<void>(getrandom(&number, sizeof number, 0));
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return str(".unisono-", digits.data(), ".part");
}

// Some file systems have nothing to wait for, and say so.
int wait_for_disk(int file) {
  if (fsync(file) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return 0;
  return errno;
}

}  // namespace

Result<std::string> read_bounded(const std::string& path, std::size_t most_bytes, Readers readers) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return system_error(str("cannot open ", path), errno);
  struct stat info{};
  if (fstat(file.get(), &info) != 0)
    return system_error(str("cannot read the permissions of ", path), errno);
  if (!S_ISREG(info.st_mode)) return environment_error(path, " is not a regular file");
  if (readers == Readers::owner && (info.st_uid != geteuid() || (info.st_mode & 077) != 0))
    return environment_error(path,
                             " must belong to this user and be readable by nobody else "
                             "(chmod 600)");
  std::string content;
  while (content.size() <= most_bytes) {
    const std::size_t filled = content.size();
    content.resize(filled + std::min(block_bytes, most_bytes + 1 - filled));
    const ssize_t got = ::read(file.get(), content.data() + filled, content.size() - filled);
    const int why = errno;
    content.resize(filled + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && why == EINTR) continue;
    if (got < 0) return system_error(str("cannot read ", path), why);
    if (got == 0) return content;
  }
  return environment_error(path, " is larger than ", most_bytes, " bytes, the most it may have");
}

int write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

Error write_error(std::string_view what, int descriptor, std::size_t bytes, int error_number) {
  Error error = system_error(what, error_number);
  struct stat info{};
  const bool is_full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  if (!is_full || fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return error;
  // Bytes may be in the file's size that the disk has not taken.
  const auto taken = std::min({bytes, static_cast<std::size_t>(info.st_size),
                               static_cast<std::size_t>(info.st_blocks) * 512});
  error.message += str("; ", bytes - taken, " bytes more are needed");
  return error;
}

Status write_whole(const std::string& path, std::string_view content, Durable durable) {
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string folder_path = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  auto folder = open_folder(folder_path);
  if (!folder.ok()) return environment_error("cannot write ", path, ": ", folder.error().message);
  const std::string partial = random_name();
  const Descriptor file(openat(folder->get(), partial.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                               0600));
  if (!file.is_open()) return system_error(str("cannot write ", path), errno);
  int why = write_all(file.get(), content);
  if (why == 0 && durable == Durable::yes) why = wait_for_disk(file.get());
  if (why == 0) {
    if (renameat(folder->get(), partial.c_str(), folder->get(), name.c_str()) == 0) return {};
    why = errno;
  }
  unlinkat(folder->get(), partial.c_str(), 0);
  return write_error(str("cannot write ", path), file.get(), content.size(), why);
}

}  // namespace unisono
