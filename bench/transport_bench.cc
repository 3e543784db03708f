// Latency and bandwidth of the fifos, one way between two ends, for each transport and protocol,
// beside the bandwidth of memcpy in the same run.
//
// Latency is half a round trip of one message, the median of a batch. Bandwidth counts the bytes of
// messages of a size that follow each other, from when the first is sent until the sender knows
// that the last has been copied out of its slot: what a collective's step costs, on both sides. A
// message goes through memory twice (into the slot, out of it), an offered one once. Of several
// batches the best counts: other programs on the machine can only add time.
//
//   transport_bench [--threads]     the two ends are processes, or threads of one process

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/key.h"
#include "base/str.h"
#include "base/units.h"
#include "base/wire.h"
#include "transport/fifo.h"
#include "transport/shm/transport.h"
#include "transport/socket/transport.h"

namespace {

using namespace unisono;
using namespace unisono::transport;
using Clock = std::chrono::steady_clock;

constexpr std::size_t latency_bytes[] = {8, 1024, 8192};
constexpr std::size_t stream_bytes[] = {4 << 10, 64 << 10, 512 << 10};
constexpr std::size_t streamed_bytes = std::size_t{32} << 20;
constexpr int batches = 10;
constexpr int round_trips = 500;
constexpr int deadline_seconds = 60;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().describe().c_str());
  std::_Exit(1);
}

struct Case {
  const char* transport;
  Protocol protocol;
  bool offers;
};

constexpr Case cases[] = {
    {"shm", Protocol::simple, false},    {"shm", Protocol::simple, true},
    {"shm", Protocol::ll, false},        {"shm", Protocol::ll128, false},
    {"socket", Protocol::simple, false}, {"socket", Protocol::simple, true},
};

FifoOptions options_of(const Case& which) {
  FifoOptions options;
  options.zero_copy = which.offers;
  options.zero_copy_min_bytes = 1;
  return options;
}

std::unique_ptr<Transport> make(const Case& which, const std::string& job) {
  const TransportOptions options{.key = derive_key(as_bytes_of(job), "bench"), .interface = {}};
  return must(std::string_view(which.transport) == "shm" ? shm::make_transport(options)
                                                         : socket::make_transport(options));
}

// One rank's end: a fifo to the other one and a fifo from it.
class End {
 public:
  End(const Case& which, Transport& transport, int self, const std::string& peer_address)
      : options_(options_of(which)),
        connection_(must(transport.connect({.key = {},
                                            .ranks = 2,
                                            .self = self,
                                            .peer = 1 - self,
                                            .peer_address = peer_address,
                                            .geometry = fifo_geometry(options_)}))) {
    const auto begin = Clock::now();
    while (!must(connection_->ready())) {
      (void)transport.progress();
      if (seconds_since(begin) > deadline_seconds) std::_Exit(2);
      std::this_thread::yield();
    }
    send_ = make_send_fifo(*connection_, which.protocol, options_);
    recv_ = must(make_recv_fifo(*connection_, which.protocol, options_));
  }

  std::size_t payload_bytes(Protocol protocol) const {
    return slot_payload_bytes(options_, protocol);
  }

  void send(const std::byte* data, std::size_t bytes) {
    const Piece piece{data, bytes};
    wait([&] { return must(send_->can_send()); });
    const bool offer = send_->offers_zero_copy({&piece, 1});
    const Status sent = offer ? send_->offer({&piece, 1}) : send_->send({&piece, 1});
    if (!sent.ok()) std::_Exit(3);
  }
  void receive(std::byte* destination, std::size_t bytes) {
    wait([&] { return must(recv_->arrived(bytes)); });
    if (!recv_->copy_to(destination, 0, bytes).ok() || !recv_->release().ok()) std::_Exit(4);
  }
  void wait_consumed() {
    wait([&] { return must(send_->flush()) && send_->consumed() == send_->sent(); });
  }
  void flush() {
    wait([&] { return must(send_->flush()) && must(recv_->flush()); });
  }

 private:
  template <class Done>
  void wait(Done done) {
    const bool mapped = connection_->host_link() != nullptr;
    for (long polls = 1; !done(); ++polls) {
      if (!mapped && !connection_->progress().ok()) std::_Exit(5);
      if (polls % 256 != 0) continue;
      if (!connection_->check_peer().ok()) std::_Exit(6);
      std::this_thread::yield();
    }
  }

  FifoOptions options_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<SendFifo> send_;
  std::unique_ptr<RecvFifo> recv_;
};

struct Figures {
  std::vector<double> latency_us;
  std::vector<double> gb_s;
};

std::size_t messages_of(std::size_t bytes) {
  return std::min<std::size_t>(streamed_bytes / bytes, 20'000);
}

double best_latency_us(End& end, std::byte* data, std::size_t bytes) {
  std::vector<double> times(round_trips);
  double best = 1e9;
  for (int batch = 0; batch < batches; ++batch) {
    for (double& time : times) {
      const auto begin = Clock::now();
      end.send(data, bytes);
      end.receive(data, bytes);
      time = seconds_since(begin) / 2 * 1e6;
    }
    std::nth_element(times.begin(), times.begin() + round_trips / 2, times.end());
    best = std::min(best, times[round_trips / 2]);
  }
  end.flush();
  return best;
}

double best_gb_s(End& end, const std::byte* data, std::size_t bytes) {
  const std::size_t count = messages_of(bytes);
  double best = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i) end.send(data, bytes);
    end.wait_consumed();
    best = std::max(best, static_cast<double>(count * bytes) / seconds_since(begin) / 1e9);
  }
  return best;
}

Figures run_sender(const Case& which, End& end) {
  Figures figures;
  const std::size_t most = end.payload_bytes(which.protocol);
  std::vector<std::byte> data(most, std::byte{1});
  for (const std::size_t bytes : latency_bytes)
    figures.latency_us.push_back(best_latency_us(end, data.data(), bytes));
  for (const std::size_t bytes : stream_bytes)
    figures.gb_s.push_back(best_gb_s(end, data.data(), std::min(bytes, most)));
  return figures;
}

void run_receiver(const Case& which, End& end) {
  const std::size_t most = end.payload_bytes(which.protocol);
  std::vector<std::byte> data(most);
  for (const std::size_t bytes : latency_bytes) {
    for (int i = 0; i < batches * round_trips; ++i) {
      end.receive(data.data(), bytes);
      end.send(data.data(), bytes);
    }
    end.flush();
  }
  for (const std::size_t bytes : stream_bytes) {
    const std::size_t size = std::min(bytes, most);
    for (std::size_t i = 0; i < batches * messages_of(size); ++i) end.receive(data.data(), size);
    end.flush();
  }
}

Figures measure(const Case& which, bool threads) {
  static int count = 0;
  const std::string job = str("bench", getpid(), "n", count++);
  // Rank 1, the higher one, listens for rank 0, which alone needs to know its address.
  auto theirs = make(which, job);
  const std::string address = theirs->address();
  const auto receiver = [&] {
    End end(which, *theirs, 1, "");
    run_receiver(which, end);
  };
  const auto sender = [&] {
    auto ours = make(which, job);
    End end(which, *ours, 0, address);
    return run_sender(which, end);
  };
  if (threads) {
    std::thread other(receiver);
    Figures figures = sender();
    other.join();
    return figures;
  }
  const pid_t child = fork();
  if (child == 0) {
    receiver();
    theirs.reset();
    _exit(0);
  }
  Figures figures = sender();
  waitpid(child, nullptr, 0);
  return figures;
}

double memcpy_gb_s(std::size_t bytes) {
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const std::size_t count = std::max<std::size_t>(1, streamed_bytes / bytes / 4);
    const auto begin = Clock::now();
    for (std::size_t n = 0; n < count; ++n) {
      std::memcpy(to.data(), from.data(), bytes);
      // Keeps the compiler from leaving out copies that nobody reads.
      asm volatile("" : : "r"(to.data()) : "memory");
    }
    best = std::max(best, static_cast<double>(count * bytes) / seconds_since(begin) / 1e9);
  }
  return best;
}

void print_head() {
  std::printf("%-16s %-7s", "transport", "proto");
  for (const std::size_t bytes : latency_bytes) std::printf(" %9s", format_bytes(bytes).c_str());
  for (const std::size_t bytes : stream_bytes) std::printf(" %9s", format_bytes(bytes).c_str());
  std::printf("\n%-16s %-7s %29s %29s\n", "", "", "one way, us", "GB/s");
}

}  // namespace

int main(int argc, char** argv) {
  const bool threads = argc > 1 && std::string_view(argv[1]) == "--threads";
  std::printf("two %s, fifos of %d slots; LL's messages are at most 16 KiB\n",
              threads ? "threads" : "processes", FifoOptions{}.slots);
  print_head();
  std::printf("%-24s %29s", "memcpy", "");
  for (const std::size_t bytes : stream_bytes) std::printf(" %9.2f", memcpy_gb_s(bytes));
  std::printf("  (%.2f out of the caches)\n", memcpy_gb_s(std::size_t{64} << 20));
  for (const Case& which : cases) {
    const Figures figures = measure(which, threads);
    std::printf("%-16s %-7s", str(which.transport, which.offers ? ", offered" : "").c_str(),
                std::string(name(which.protocol)).c_str());
    for (const double us : figures.latency_us) std::printf(" %9.2f", us);
    for (const double gb_s : figures.gb_s) std::printf(" %9.2f", gb_s);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
