// One rank as a process of its own, for tests that kill it: joins by the settings, then reduces
// until told otherwise. Prints its outcome as one line.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unisono/communicator.h>

int main(int argc, char** argv) {
  const int victim = argc > 1 ? std::atoi(argv[1]) : -1;
  const int kill_at = argc > 2 ? std::atoi(argv[2]) : 0;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 100;
  const long elements = argc > 4 ? std::atol(argv[4]) : 1000;
  auto world = unisono::Communicator::init();
  if (!world.ok()) {
    std::printf("init %s\n", world.error().describe().c_str());
    return 2;
  }
  std::vector<float> data(static_cast<std::size_t>(elements));
  for (int round = 0; round < rounds; ++round) {
    if (world->rank() == victim && round == kill_at) ::kill(::getpid(), SIGKILL);
    for (float& element : data) element = 1;
    const auto status =
        world->all_reduce(data.data(), data.data(), elements, unisono::DataType::float32);
    if (!status.ok()) {
      std::printf("failed peer=%d timed_out=%d %s\n", status.error().peer, status.error().timed_out,
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
