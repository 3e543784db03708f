// The ranks of a benchmark as processes of this machine, which meet through a file.
#pragma once

#include <sys/wait.h>
#include <unisono/communicator.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace unisono::bench {

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::_Exit(1);
}

// Runs `run` in a process for each rank, with the rendezvous that they are to give. Whether all of
// them returned 0.
inline bool run_ranks(int ranks, const std::function<int(int rank, const std::string& url)>& run) {
  std::string folder = (std::filesystem::temp_directory_path() / "unisono-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) die("no temporary directory");
  const std::string url = "file://" + folder + "/rendezvous";
  setenv("UNISONO_SECRET", "a benchmark of this machine alone", 1);
  for (int rank = 0; rank < ranks; ++rank)
    if (fork() == 0) std::_Exit(run(rank, url));
  bool all_ended_well = true;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    all_ended_well = all_ended_well && status == 0;
  }
  std::filesystem::remove_all(folder);
  return all_ended_well;
}

// The communicator of such a rank; ends the process where there is none.
inline Communicator join(int rank, int ranks, const std::string& url) {
  InitOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = url;
  auto made = Communicator::init(options);
  if (!made.ok()) die(made.error().describe());
  return std::move(made).value();
}

}  // namespace unisono::bench
