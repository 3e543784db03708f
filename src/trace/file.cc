#include "trace/file.h"

#include <algorithm>
#include <functional>

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

}  // namespace unisono::trace
