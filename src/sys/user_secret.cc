#include "sys/user_secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/try.h"

namespace unisono::sys {
namespace {

constexpr std::size_t secret_digits = 64;

Result<std::string> read_secret(const std::string& path) {
  auto content = read_bounded(path, secret_digits, Readers::owner);
  if (content.ok() && content->size() != secret_digits)
    return environment_error(path, " does not hold a secret of ", secret_digits,
                             " digits; remove it");
  return content;
}

std::optional<uid_t> lstat_owner(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return info.st_uid;
}

// Makes the file whole at once: of several processes one wins, and all read what it wrote.
Status make_secret_file(const std::string& path) {
  UNISONO_ASSIGN(const std::string secret, random_secret());
  std::string temporary = path + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (file < 0) return system_error(str("cannot create a file in the folder of ", path), errno);
  const bool is_written =
      write(file, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  close(file);
  const bool is_there =
      is_written && (link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int why = errno;
  unlink(temporary.c_str());
  if (!is_there) return system_error(str("cannot make ", path), why);
  return {};
}

}  // namespace

// Everybody may make a folder of that name in /tmp, and nobody else in /run/user/<user id>. That
// one ends with the user's last session, though, and jobs may outlive it. It is not taken from
// XDG_RUNTIME_DIR, which one rank may have in its environment and another one not.
std::string user_directory() {
  std::string usual = str("/tmp/unisono-", geteuid());
  const std::string runtime = str("/run/user/", geteuid());
  const bool is_taken = lstat_owner(usual).value_or(geteuid()) != geteuid();
  return is_taken && lstat_owner(runtime) == geteuid() ? runtime + "/unisono" : usual;
}

Status make_private_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(str("cannot make ", path), errno);
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0)
    return system_error(str("cannot read the permissions of ", path), errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
    return environment_error(
        path, " must be a folder that this user owns and nobody else can access (chmod 700)");
  return {};
}

Result<std::string> user_secret(const std::string& directory) {
  if (const Status made = make_private_directory(directory); !made.ok())
    return environment_error(made.error().message, "; or set UNISONO_SECRET");
  const std::string path = directory + "/secret";
  if (access(path.c_str(), F_OK) != 0) UNISONO_TRY(make_secret_file(path));
  return read_secret(path);
}

Result<std::string> random_secret() {
  std::array<std::byte, secret_digits / 2> bytes;
  // Up to 256 bytes come whole and without interruption.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return system_error("cannot read random numbers from the kernel", errno);
  return hex(bytes);
}

}  // namespace unisono::sys
