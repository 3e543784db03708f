// The loop that times libraries beside each other: it tells right results from wrong ones.
#include "../../bench/peers/worker.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace unisono::peers {
namespace {

// Rank 1 of 2. Rank 0's inputs are smaller than its own by 1, so it needs no other rank.
class Alone final : public Library {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string describe() const override { return "alone 1.0"; }
  std::string barrier() override { return {}; }
  std::string run(const Operation& operation) override {
    ++calls;
    if (fails_at == calls) return "out of\nluck";
    const std::size_t count = operation.count;
    const float* in = operation.input;
    std::vector<float> mine(in, in + count);
    float* out = operation.output;
    for (std::size_t i = 0; i < count; ++i) switch (operation.kind) {
        case Kind::all_reduce:
          out[i] = 2 * mine[i] - 1;
          break;
        case Kind::reduce_scatter:
          out[i] = 2 * in[count + i] - 1;
          break;
        case Kind::send_recv:
        case Kind::broadcast:
          out[i] = mine[i] - 1;
          break;
        case Kind::all_gather:
          out[i] = mine[i] - 1;
          out[count + i] = mine[i];
          break;
        case Kind::all_to_all:
          out[i] = in[count + i] - 1;
          out[count + i] = in[count + i];
          break;
      }
    if (spoils_from != 0 && calls >= spoils_from) out[count / 2] += 1;
    return {};
  }

  int calls = 0, fails_at = 0, spoils_from = 0;
};

// Answers to commands, line by line, the greeting first.
std::vector<std::string> tell(Library& library, const std::vector<std::string>& commands) {
  static std::atomic<int> made{0};
  const std::string path = "/tmp/unisono-worker-test-" + std::to_string(::getpid()) + "-" +
                           std::to_string(made.fetch_add(1));
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  std::thread server([&] { (void)serve(library, path); });
  const int connection = ::accept(listener, nullptr, nullptr);
  for (const std::string& command : commands)
    EXPECT_EQ(::write(connection, (command + "\n").data(), command.size() + 1),
              static_cast<ssize_t>(command.size() + 1));
  ::shutdown(connection, SHUT_WR);
  std::string all;
  char piece[1024];
  for (ssize_t n; (n = ::read(connection, piece, sizeof(piece))) > 0;)
    all.append(piece, static_cast<std::size_t>(n));
  server.join();
  ::close(connection);
  ::close(listener);
  ::unlink(path.c_str());
  std::vector<std::string> lines;
  std::istringstream stream(all);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<double> numbers(const std::string& answer) {
  std::istringstream words(answer.substr(answer.find(' ')));
  std::vector<double> out;
  for (double number; words >> number;) out.push_back(number);
  return out;
}

TEST(Worker, GreetsWithItsRankAndLibrary) {
  Alone library;
  EXPECT_EQ(tell(library, {"quit"}), std::vector<std::string>{"hello 1 alone 1.0"});
}

TEST(Worker, FindsRightResultsRight) {
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"})
    for (const char* count : {"1", "2", "1031"}) {
      Alone library;
      const auto lines =
          tell(library, {std::string("measure ") + collective + " " + count + " 0 2 3 5"});
      ASSERT_EQ(lines.size(), 2U) << collective;
      const auto found = numbers(lines[1]);
      ASSERT_EQ(found.size(), 4U) << lines[1];
      EXPECT_EQ(found[0], 0) << collective << " of " << count;
      EXPECT_EQ(library.calls, 2 + 3 * 5);
    }
}

TEST(Worker, CountsWrongElementsOfFirstAndLastCalls) {
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}) {
    Alone always;
    always.spoils_from = 1;
    const std::string command = std::string("measure ") + collective + " 100 0 1 2 3";
    EXPECT_EQ(numbers(tell(always, {command})[1])[0], 2) << collective;
    Alone at_last;
    at_last.spoils_from = 7;
    EXPECT_EQ(numbers(tell(at_last, {command})[1])[0], 1) << collective;
  }
}

TEST(Worker, ChecksTheFirstCallOfAReductionInPlace) {
  Alone library;
  EXPECT_EQ(numbers(tell(library, {"measure all_reduce 100 1 1 1 3"})[1])[0], 0);
  library.spoils_from = 1;
  EXPECT_EQ(numbers(tell(library, {"measure all_reduce 100 1 1 1 3"})[1])[0], 1);
}

TEST(Worker, SaysWhyItCannotGoOnInOneLine) {
  Alone library;
  library.fails_at = 4;
  EXPECT_EQ(tell(library, {"measure all_gather 10 0 1 1 9"})[1], "fail out of luck");
}

TEST(Worker, RefusesCommandsThatItCannotRead) {
  for (const char* command :
       {"measure all_redcue 1 0 1 1 1", "measure all_reduce 0 0 1 1 1", "measure all_reduce 1 0",
        "measure all_reduce 99999999999 0 1 1 1", "measure all_reduce 1 0 1 0 1", "hello", ""}) {
    Alone library;
    const auto lines = tell(library, {command});
    ASSERT_EQ(lines.size(), 2U) << command;
    EXPECT_EQ(lines[1].substr(0, 4), "fail") << command;
    EXPECT_EQ(library.calls, 0);
  }
}

}  // namespace
}  // namespace unisono::peers
