// One rank as a process of its own, for tests that end it: joins by the settings, then reduces
// until told otherwise. Prints its outcome as one line.
//
// rank STEM run|kill|abort VICTIM AT ROUNDS ELEMENTS: rank VICTIM ends itself, or aborts, before
// its call number AT, once all ranks have joined: each then makes a file, STEM and its rank.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <unisono/communicator.h>

namespace {

void wait_for_all(const std::string& stem, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    while (::access((stem + std::to_string(rank)).c_str(), F_OK) != 0) ::usleep(1000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 1;
  const std::string stem = argv[1];
  const std::string_view how = argv[2];
  const int victim = std::atoi(argv[3]);
  const int at = std::atoi(argv[4]);
  const int rounds = std::atoi(argv[5]);
  const long elements = std::atol(argv[6]);
  auto world = unisono::Communicator::init();
  if (!world.ok()) {
    std::printf("init %s\n", world.error().describe().c_str());
    return 2;
  }
  std::ofstream(stem + std::to_string(world->rank())).flush();
  std::vector<float> data(static_cast<std::size_t>(elements));
  for (int round = 0; round < rounds; ++round) {
    if (how != "run" && world->rank() == victim && round == at) {
      wait_for_all(stem, world->size());
      if (how == "kill") ::kill(::getpid(), SIGKILL);
      world->abort();
    }
    for (float& element : data) element = 1;
    const auto status =
        world->all_reduce(data.data(), data.data(), elements, unisono::DataType::float32);
    if (!status.ok()) {
      std::printf("failed peer=%d timed_out=%d aborted=%d %s\n", status.error().peer,
                  status.error().timed_out, status.error().aborted,
                  status.error().describe().c_str());
      return 3;
    }
    for (float element : data)
      if (element != static_cast<float>(world->size())) {
        std::printf("wrong\n");
        return 4;
      }
  }
  std::printf("done\n");
  return 0;
}
