// What the protection of data between hosts costs a core: our frames, sealed by AES-256-GCM, and a
// TLS 1.3 stream with a pre-shared key (libssl's, AES-128-GCM, which is the cheaper one) over the
// same socket pair. Times are of the thread's CPU, so that other programs do not count.
//
//   build/test/wire_bench [megabytes per measurement]
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "transport/socket/inbox.h"
#include "transport/socket/stream.h"

namespace {

using namespace unisono;
using namespace unisono::transport;
using namespace unisono::transport::socket;
using Bytes = std::vector<std::byte>;

constexpr int repetitions = 5;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Cycles are counted at the processor's nominal frequency; 0 where that is not known.
double cycles_per_second() {
#ifdef __x86_64__
  const auto seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double begin = seconds();
  const auto first = __rdtsc();
  const timespec pause{0, 200'000'000};
  nanosleep(&pause, nullptr);
  const auto last = __rdtsc();
  return static_cast<double>(last - first) / (seconds() - begin);
#else
  return 0;
#endif
}

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Pair {
  Pair() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no socket pair");
    for (const int end : ends) {
      constexpr int room = 4 << 20;
      setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    a = sys::Socket(ends[0]);
    b = sys::Socket(ends[1]);
  }
  sys::Socket a, b;
};

struct Ignored final : SentFrames {
  void frame_sent(std::uint64_t) override {}
};

// Both ends on this thread in turn, so that neither waits for the other.
double measure_frames(sys::Protection protection, std::size_t frame_bytes_each, std::size_t total) {
  Pair pair;
  auto poller = *Poller::make();
  const Key key = *fresh_key();
  Stream sender(std::move(pair.a), *poller);
  Stream receiver(std::move(pair.b), *poller);
  for (Stream* stream : {&sender, &receiver}) {
    require(stream->seal({.protection = protection, .send_key = key, .receive_key = key}).ok(),
            "no seal");
    require(stream->watch().ok(), "no poller");
  }
  const Geometry geometry{.region_bytes = frame_bytes_each, .signals = 1};
  Bytes source(frame_bytes_each, std::byte{7});
  Bytes region(frame_bytes_each);
  const ExposedMemory exposed(0, 0);
  Gets gets(0);
  FrameReader reader(region.data(), exposed, gets, geometry, 0, 0, receiver.opener());
  Ignored ignored;
  const double begin = cpu_seconds();
  for (std::size_t done = 0; done < total; done += frame_bytes_each) {
    sender.push({.type = Frame::Type::put, .bytes = frame_bytes_each}, source.data(), 0);
    sender.send(ignored);
    for (bool arrived = false; !arrived;) {
      const FrameReader::Room room = reader.room();
      const std::array parts{iovec{.iov_base = room.payload, .iov_len = room.payload_bytes},
                             iovec{.iov_base = room.buffer, .iov_len = room.buffer_bytes}};
      const auto got = sys::receive_some(receiver.socket(),
                                         std::span(parts).subspan(room.payload_bytes == 0 ? 1 : 0));
      reader.took(got.bytes);
      auto frame = reader.next();
      require(frame.ok(), "a frame was refused");
      arrived = frame->has_value();
      if (sender.nothing_waits()) continue;
      poller->poll();
      sender.send(ignored);
    }
  }
  return (cpu_seconds() - begin) / static_cast<double>(total);
}

// libssl, loaded: nothing of the library links it.
struct Tls {
  void* library = dlopen("libssl.so.3", RTLD_NOW);
  template <class F>
  F* get(const char* name) const {
    return library == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library, name));
  }
};

unsigned psk_client(void*, const char*, char* identity, unsigned, unsigned char* psk, unsigned) {
  std::snprintf(identity, 8, "rank");
  std::fill_n(psk, 32, static_cast<unsigned char>(5));
  return 32;
}
unsigned psk_server(void*, const char*, unsigned char* psk, unsigned) {
  std::fill_n(psk, 32, static_cast<unsigned char>(5));
  return 32;
}

double measure_tls(const Tls& tls, std::size_t message_bytes, std::size_t total) {
  Pair pair;
  const auto context_of = [&](const char* method) {
    return tls.get<void*(const void*)>("SSL_CTX_new")(tls.get<const void*()>(method)());
  };
  void* const client_context = context_of("TLS_client_method");
  void* const server_context = context_of("TLS_server_method");
  tls.get<void(void*, decltype(&psk_client))>("SSL_CTX_set_psk_client_callback")(client_context,
                                                                                 psk_client);
  tls.get<void(void*, decltype(&psk_server))>("SSL_CTX_set_psk_server_callback")(server_context,
                                                                                 psk_server);
  for (void* const context : {client_context, server_context})
    tls.get<int(void*, const char*)>("SSL_CTX_set_ciphersuites")(context, "TLS_AES_128_GCM_SHA256");
  const auto fresh = tls.get<void*(void*)>("SSL_new");
  void* const client = fresh(client_context);
  void* const server = fresh(server_context);
  tls.get<int(void*, int)>("SSL_set_fd")(client, pair.a.get());
  tls.get<int(void*, int)>("SSL_set_fd")(server, pair.b.get());
  const auto connect = tls.get<int(void*)>("SSL_connect");
  const auto accept = tls.get<int(void*)>("SSL_accept");
  bool client_done = false;
  bool server_done = false;
  for (int i = 0; i < 100 && !(client_done && server_done); ++i) {
    client_done = client_done || connect(client) == 1;
    server_done = server_done || accept(server) == 1;
  }
  require(client_done && server_done, "TLS cannot shake hands");
  if (static bool said = false; !std::exchange(said, true))
    std::printf("TLS: %s\n",
                tls.get<const char*(const void*)>("SSL_CIPHER_get_name")(
                    tls.get<const void*(const void*)>("SSL_get_current_cipher")(client)));
  const auto write = tls.get<int(void*, const void*, int)>("SSL_write");
  const auto read = tls.get<int(void*, void*, int)>("SSL_read");
  // SSL_MODE_ENABLE_PARTIAL_WRITE and SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER.
  tls.get<long(void*, int, long, void*)>("SSL_ctrl")(client, 33, 3, nullptr);
  Bytes source(message_bytes, std::byte{7});
  Bytes target(message_bytes);
  const double begin = cpu_seconds();
  for (std::size_t done = 0; done < total; done += message_bytes) {
    std::size_t written = 0;
    for (std::size_t have = 0; have < message_bytes;) {
      if (written < message_bytes) {
        const int some =
            write(client, source.data() + written, static_cast<int>(message_bytes - written));
        if (some > 0) written += static_cast<std::size_t>(some);
      }
      for (int some = 1; some > 0 && have < written;) {
        some = read(server, target.data() + have, static_cast<int>(message_bytes - have));
        if (some > 0) have += static_cast<std::size_t>(some);
      }
    }
  }
  return (cpu_seconds() - begin) / static_cast<double>(total);
}

// The cipher alone, on memory in a core's cache.
double measure_seal(sys::Protection protection, std::size_t bytes, std::size_t total) {
  const Key key = *fresh_key();
  auto sealing = sys::Seal::make(key, protection, sys::Seal::Role::sender);
  auto opening = sys::Seal::make(key, protection, sys::Seal::Role::receiver);
  require(sealing.ok() && opening.ok(), "no seal");
  Bytes source(bytes, std::byte{7});
  Bytes sealed(bytes);
  const double begin = cpu_seconds();
  for (std::size_t done = 0; done < total; done += bytes) {
    sealing->begin({});
    sealing->add(source.data(), bytes, sealed.data());
    const auto tag = sealing->tag();
    std::byte* const there = protection == sys::Protection::encrypt ? sealed.data() : source.data();
    opening->begin({});
    opening->add(there, bytes, there);
    require(opening->check(*tag).ok(), "a seal was refused");
  }
  return (cpu_seconds() - begin) / static_cast<double>(total);
}

// Of one end: half of what both take.
void report(const std::string& what, std::size_t bytes, double cycles,
            const std::function<double()>& measure) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(measure() / 2);
  std::ranges::sort(seconds);
  const double median = seconds[repetitions / 2];
  std::printf("%-28s %8zu %12.2f %12.2f\n", what.c_str(), bytes, 1e-9 / median, median * cycles);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t total = static_cast<std::size_t>(count > 1 ? std::atoi(arguments[1]) : 256)
                            << 20;
  const double ticks = cycles_per_second();
  const Tls tls;
  std::printf("medians of %d, of %zu MiB each; cycles at %.2f GHz\n", repetitions, total >> 20,
              ticks * 1e-9);
  std::printf("%-28s %8s %12s %12s\n", "one end", "bytes", "GB/s a core", "cycles/byte");
  for (const std::size_t bytes : {std::size_t{16} << 10, std::size_t{256} << 10}) {
    using sys::Protection;
    for (const auto protection : {Protection::authenticate, Protection::encrypt})
      report(str("the seal alone, ", sys::name(protection)), bytes, ticks,
             [&] { return measure_seal(protection, bytes, total); });
    for (const auto protection : {Protection::none, Protection::authenticate, Protection::encrypt})
      report(str("frames, ", sys::name(protection)), bytes, ticks,
             [&] { return measure_frames(protection, bytes, total); });
    if (tls.library != nullptr)
      report("TLS 1.3, pre-shared key", bytes, ticks,
             [&] { return measure_tls(tls, bytes, total); });
  }
  return 0;
}
