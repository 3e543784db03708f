#include "topo/host/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/str.h"

namespace unisono::topo {
namespace {

std::optional<std::string> without_links(const std::string& path) {
  std::array<char, PATH_MAX> out;
  return realpath(path.c_str(), out.data()) == nullptr ? std::nullopt
                                                       : std::optional<std::string>(out.data());
}

template <class T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Sysfs::Sysfs(const std::string& root) : root_(without_links(root).value_or("")) {}

std::optional<std::string> Sysfs::line(const std::string& path) const {
  const auto found = resolved(path);
  if (!found) return std::nullopt;
  // A pipe without a writer would not open otherwise.
  const int file = open(str(root_, '/', *found).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::array<char, most_file_bytes> bytes;
  struct stat kind{};
  const ssize_t got = fstat(file, &kind) == 0 && S_ISREG(kind.st_mode)
                          ? read(file, bytes.data(), bytes.size())
                          : -1;
  close(file);
  if (got < 0) return std::nullopt;
  std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  text = text.substr(0, text.find('\n'));
  constexpr std::string_view space = " \t\r";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return std::string();
  return std::string(text.substr(begin, text.find_last_not_of(space) + 1 - begin));
}

std::optional<std::int64_t> Sysfs::number(const std::string& path) const {
  const auto text = line(path);
  std::int64_t value = 0;
  if (!text) return std::nullopt;
  const bool is_read =
      text->starts_with("0x") ? parse(text->substr(2), value, 16) : parse(*text, value);
  return is_read ? std::optional(value) : std::nullopt;
}

std::vector<std::string> Sysfs::names(const std::string& path) const {
  std::vector<std::string> out;
  const auto found = resolved(path);
  if (!found) return out;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(str(root_, '/', *found).c_str()),
                                                   closedir);
  if (folder == nullptr) return out;
  while (out.size() < most_names) {
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  }
  std::ranges::sort(out);
  return out;
}

std::optional<std::string> Sysfs::resolved(const std::string& path) const {
  if (!exists()) return std::nullopt;
  const auto found = without_links(str(root_, '/', path));
  if (!found || !found->starts_with(root_)) return std::nullopt;
  const std::string_view rest = std::string_view(*found).substr(root_.size());
  if (rest.empty()) return std::string();
  if (root_ != "/" && rest.front() != '/') return std::nullopt;
  return std::string(rest.substr(rest.front() == '/' ? 1 : 0));
}

bool list_has(std::string_view list, int number) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    const std::string_view range = list.substr(0, end);
    const std::size_t dash = std::min(range.find('-'), range.size());
    int first = 0;
    int last = 0;
    const bool is_read = parse(range.substr(0, dash), first) &&
                         parse(dash == range.size() ? range : range.substr(dash + 1), last);
    if (is_read && number >= first && number <= last) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace unisono::topo
