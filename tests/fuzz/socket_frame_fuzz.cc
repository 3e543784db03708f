// What the socket transport decodes: handshakes, and frames as they come in on the streams of a
// connection. Bytes from a peer must never reach anything outside the region and the signals.

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "transport/socket/handshake.h"
#include "transport/socket/inbox.h"

namespace {

using namespace unisono;
using namespace unisono::transport;
using namespace unisono::transport::socket;

constexpr Geometry geometry{.region_bytes = 1500, .signals = 3};
constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard{0xa5};

void require(bool condition) {
  if (!condition) std::abort();
}

struct Victim {
  std::byte memory[guard_bytes + geometry.region_bytes + guard_bytes];
  std::atomic<std::uint64_t> signals[geometry.signals + 1];

  Victim() {
    std::memset(memory, static_cast<int>(guard), sizeof memory);
    for (auto& signal : signals) signal.store(0);
  }
  std::byte* region() { return memory + guard_bytes; }
  ~Victim() {
    for (std::size_t i = 0; i < guard_bytes; ++i) {
      require(memory[i] == guard);
      require(memory[sizeof memory - 1 - i] == guard);
    }
    require(signals[geometry.signals].load() == 0);
  }
};

// Bytes go in by chunks of a size that the input chooses, on one or two streams in turn.
void fuzz_inbox(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  const std::size_t streams = 1 + std::to_integer<std::size_t>(bytes[0]) % 2;
  const std::size_t chunk = 1 + std::to_integer<std::size_t>(bytes[1]) * 4;
  bytes = bytes.subspan(2);

  auto poller = Poller::make();
  require(poller.ok());
  Streams ours;
  std::vector<sys::Socket> theirs;
  for (std::size_t i = 0; i < streams; ++i) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    ours.push_back(std::make_unique<Stream>(sys::Socket(ends[0]), **poller));
    require(ours.back()->watch().ok());
    theirs.emplace_back(ends[1]);
  }
  Victim victim;
  Inbox inbox(ours, victim.region(), victim.signals, geometry, 7);
  for (std::size_t turn = 0; !bytes.empty(); ++turn) {
    const auto part = bytes.first(std::min(chunk, bytes.size()));
    const iovec vector{.iov_base = const_cast<std::byte*>(part.data()), .iov_len = part.size()};
    const sys::Transferred sent = sys::send_some(theirs[turn % streams], {&vector, 1});
    if (sent.bytes == 0) return;
    bytes = bytes.subspan(sent.bytes);
    for (auto& stream : ours) stream->readiness().readable.store(true);
    const Status received = inbox.receive();
    if (received.ok()) continue;
    require(received.error().kind == ErrorKind::peer && received.error().peer == 7);
    return;
  }
}

void fuzz_handshake(std::span<const std::byte> bytes) {
  const Nonce challenge{};
  (void)decode_challenge(bytes);
  require(!decode_hello(bytes, "secret", challenge).ok());
  require(!decode_reply(bytes, "secret", challenge, {}).ok());

  // Fields of a peer that knows the secret and sends nonsense.
  Hello hello;
  std::int32_t numbers[5];
  if (bytes.size() < sizeof numbers + 8) return;
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  hello.stream = numbers[0] & 0xffff;
  hello.streams = numbers[1] & 0xffff;
  hello.self = numbers[2];
  hello.peer = numbers[3];
  hello.geometry.signals = numbers[4];
  std::memcpy(&hello.geometry.region_bytes, bytes.data() + sizeof numbers, 8);
  const auto decoded = decode_hello(encode_hello(hello, "secret", challenge), "secret", challenge);
  if (!decoded.ok()) return;
  require(decoded->streams >= 1 && decoded->streams <= max_streams);
  require(decoded->stream >= 0 && decoded->stream < decoded->streams);
  require(decoded->self >= 0 && decoded->peer >= 0 && decoded->self != decoded->peer);
  require(decoded->geometry == hello.geometry);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  fuzz_handshake(bytes);
  fuzz_inbox(bytes);
  return 0;
}
