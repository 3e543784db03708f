#include "comm/job/launcher_note.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/str.h"
#include "comm/join/join.h"

namespace unisono::comm {
namespace {

// Relaxed: it orders nothing else.
std::atomic<bool> has_noted = false;

// In the launcher's folder, where its ranks meet; empty: no launcher reads it.
std::string note_path() {
  constexpr std::string_view folder_prefix = "unisono-job-";
  const Settings& settings = environment_settings();
  if (!settings.is_set(Setting::rank)) return {};
  const auto place = parse_rendezvous(settings.text(Setting::rendezvous));
  if (!place.ok() || !place->is_file) return {};
  const std::string folder = place->path.substr(0, place->path.rfind('/'));
  if (!folder.substr(folder.rfind('/') + 1).starts_with(folder_prefix)) return {};
  return str(folder, "/blames-", settings.integer(Setting::rank));
}

}  // namespace

void note_culprit(const Error& error, int rank, int ranks) {
  const Settings& settings = environment_settings();
  const std::int64_t launched_as = settings.integer(Setting::rank);
  const bool is_of_a_peer = error.kind == ErrorKind::peer || error.aborted;
  if (!is_of_a_peer || error.peer < 0 || error.peer == (rank < 0 ? launched_as : rank)) return;
  const std::string path = note_path();
  if (path.empty()) return;
  const bool is_launchers =
      rank < 0 || (rank == launched_as && ranks == settings.integer(Setting::world_size));
  const Status written =
      write_whole(path, is_launchers ? str(error.peer) : std::string(), Durable::no);
  if (written.ok())
    has_noted.store(true, std::memory_order_relaxed);
  else
    log(LogLevel::debug, written.error().message);
}

void withdraw_note() {
  if (has_noted.exchange(false, std::memory_order_relaxed)) unlink(note_path().c_str());
}

}  // namespace unisono::comm
