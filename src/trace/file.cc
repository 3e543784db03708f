#include "trace/file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/str.h"

namespace unisono::trace {

namespace {

void keep_newest(std::vector<Entry>& entries) {
  if (entries.size() > most_entries)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(most_entries));
}

}  // namespace

std::string file_of(std::string_view directory, std::uint64_t communicator, int rank) {
  return str(directory, "/unisono-", communicator, "-", rank, ".json");
}

void keep_busiest(std::vector<Connection>& connections, std::size_t most) {
  if (connections.size() <= most) return;
  std::ranges::stable_sort(connections, std::ranges::greater(),
                           [](const Connection& one) { return one.traffic.bytes; });
  connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(most), connections.end());
}

void keep_what_a_file_holds(Record& record) {
  keep_newest(record.collectives);
  keep_newest(record.messages);
  keep_busiest(record.connections, most_entries);
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string partial = str(path, ".", getpid(), ".part");
  errno = 0;
  bool is_written = false;
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    is_written = file.good();
  }
  if (is_written && std::rename(partial.c_str(), path.c_str()) == 0) return {};
  const int why = errno;
  std::remove(partial.c_str());
  return environment_error("cannot write the record to ", path, ": ",
                           why != 0 ? std::strerror(why) : "not all of it was written");
}

}  // namespace unisono::trace
