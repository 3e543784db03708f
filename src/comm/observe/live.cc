#include "comm/observe/live.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>

#include "base/json.h"
#include "base/str.h"
#include "sys/user_secret.h"
#include "trace/file.h"

namespace unisono::comm {
namespace {

bool is_open(const trace::Entry& entry) {
  return entry.state == trace::State::scheduled || entry.state == trace::State::started;
}

std::vector<int> ranks_here(const Job& job) {
  std::vector<int> ranks;
  for (int rank = 0; rank < job.size(); ++rank)
    if (job.is_on_this_host(rank)) ranks.push_back(rank);
  return ranks;
}

}  // namespace

std::string live_directory() { return sys::user_directory() + "/live"; }

Result<std::shared_ptr<sys::LocalSocket>> open_live_socket(const Job& job) {
  const std::string directory = live_directory();
  if (const Status made = sys::make_private_directory(sys::user_directory()); !made.ok())
    return made.error();
  if (ranks_here(job).front() == job.rank()) sys::LocalSocket::sweep(directory);
  return sys::LocalSocket::listen(directory, str(job.id(), "-", job.rank()));
}

std::optional<std::size_t> entries_asked_for(std::string_view request, std::string_view head) {
  if (!request.starts_with(head)) return std::nullopt;
  request.remove_prefix(head.size());
  std::size_t entries = 0;
  const char* const end = request.data() + request.size();
  const auto [at, failed] = std::from_chars(request.data(), end, entries);
  if (failed != std::errc() || at != end) return std::nullopt;
  return std::min(entries, trace::most_entries);
}

void keep_open_and_newest(std::vector<trace::Entry>& entries, std::size_t newest) {
  std::size_t old = entries.size() - std::min(entries.size(), newest);
  std::erase_if(entries, [&](const trace::Entry& entry) {
    if (old == 0) return false;
    --old;
    return !is_open(entry);
  });
}

std::string live_head(const Job& job) {
  std::string out =
      str(R"({"format": "unisono-live", "version": 1, "job": ")", job.id(), R"(", "world_rank": )",
          job.rank(), R"(, "world_size": )", job.size(), R"(, "ranks_on_host": [)");
  std::string_view separator;
  for (const int rank : ranks_here(job)) {
    out += str(separator, rank);
    separator = ", ";
  }
  return out + "]";
}

std::string live_json(std::string_view head, std::span<const std::string> records) {
  std::string out = str(head, R"(, "records": [)");
  std::string_view separator;
  for (const std::string& record : records) {
    out += separator;
    out += record;
    separator = ",";
  }
  out += "]}\n";
  return out;
}

}  // namespace unisono::comm
