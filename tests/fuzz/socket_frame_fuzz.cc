// What the socket transport decodes: handshakes, also under a right proof; frames as they come in
// on the streams of a connection, sealed or not; and a whole connection that talks with a rank
// which has the job's key and sends nonsense. Bytes from a peer must never reach anything outside
// the region, the signals, exposed memory and what gets ask for, and no rank is blamed that there
// is not.

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../support/quiet.h"
#include "base/hmac.h"
#include "sys/real_socket.h"
#include "transport/request.h"
#include "transport/socket/handshake.h"
#include "transport/socket/inbox.h"
#include "transport/socket/small_messages.h"
#include "transport/socket/transport.h"

namespace {

using namespace unisono;
using namespace unisono::transport;
using namespace unisono::transport::socket;

constexpr Geometry geometry{.region_bytes = 1500, .signals = 3};
constexpr std::size_t exposed_bytes = 256;
constexpr std::size_t got_bytes = 200;
constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard{0xa5};

void require(bool condition) {
  if (!condition) std::abort();
}

// Nothing may be stored before or behind it.
template <std::size_t bytes>
struct Guarded {
  std::byte memory[guard_bytes + bytes + guard_bytes];

  Guarded() { std::memset(memory, static_cast<int>(guard), sizeof memory); }
  std::byte* begin() { return memory + guard_bytes; }
  ~Guarded() {
    for (std::size_t i = 0; i < guard_bytes; ++i) {
      require(memory[i] == guard);
      require(memory[sizeof memory - 1 - i] == guard);
    }
  }
};

struct Victim {
  Guarded<geometry.region_bytes> region;
  Guarded<exposed_bytes> piece;
  std::array<Guarded<got_bytes>, 2> destinations;
  ExposedMemory exposed{0, 7};
  Gets gets{7};
  std::atomic<std::uint64_t> signals[geometry.signals + 1];

  Victim() {
    exposed.start_keys(1);
    require(exposed.add(piece.begin(), exposed_bytes).ok());
    for (auto& destination : destinations) gets.add(destination.begin(), got_bytes);
    for (auto& signal : signals) signal.store(0);
  }
  ~Victim() { require(signals[geometry.signals].load() == 0); }
};

constexpr int peer = 7;
constexpr int ranks = 9;

sys::Protection protection_of(std::byte chosen) {
  return static_cast<sys::Protection>(std::to_integer<int>(chosen) / 2 % 3);
}

// Bytes go in by chunks of a size that the input chooses, on one or two streams in turn. Where
// streams are sealed, nothing of it may have any effect.
void fuzz_inbox(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  const std::size_t streams = 1 + std::to_integer<std::size_t>(bytes[0]) % 2;
  const sys::Protection protection = protection_of(bytes[0]);
  const std::size_t chunk = 1 + std::to_integer<std::size_t>(bytes[1]) * 4;
  const Numbers numbers =
      std::to_integer<int>(bytes[0]) >= 128 ? Numbers::of_all : Numbers::of_pieces;
  bytes = bytes.subspan(2);

  auto poller = Poller::make();
  require(poller.ok());
  Streams ours;
  std::vector<sys::Socket> theirs;
  for (std::size_t i = 0; i < streams; ++i) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    ours.push_back(std::make_unique<Stream>(sys::Socket(ends[0]), **poller));
    require(ours.back()->seal({.protection = protection}).ok());
    require(ours.back()->watch().ok());
    theirs.emplace_back(ends[1]);
  }
  Victim victim;
  {
    Inbox inbox(ours, victim.region.begin(), victim.exposed, victim.gets, victim.signals, geometry,
                peer, ranks, numbers);
    for (std::size_t turn = 0; !bytes.empty(); ++turn) {
      const auto part = bytes.first(std::min(chunk, bytes.size()));
      const iovec vector{.iov_base = const_cast<std::byte*>(part.data()), .iov_len = part.size()};
      const sys::Transferred sent = sys::send_some(theirs[turn % streams], {&vector, 1});
      if (sent.bytes == 0) break;
      bytes = bytes.subspan(sent.bytes);
      for (auto& stream : ours) stream->readiness().readable.store(true);
      const Status received = inbox.receive();
      require(!inbox.fault() || (inbox.fault()->rank >= -1 && inbox.fault()->rank < ranks));
      if (received.ok()) continue;
      require(received.error().kind == ErrorKind::peer && received.error().peer == peer);
      break;
    }
    require(protection == sys::Protection::none || (!inbox.fault() && !inbox.said_bye()));
  }
  if (protection == sys::Protection::none) return;
  for (const auto& signal : victim.signals) require(signal.load() == 0);
  for (std::size_t i = 0; i < geometry.region_bytes; ++i)
    require(victim.region.begin()[i] == guard);
}

// The fields are the input's, under a right proof: a peer that has the key and says nonsense.
void fuzz_proven_handshake(std::span<const std::byte> bytes, const HandshakeKeys& keys) {
  const Nonces nonces;
  const auto proven = [&](const Key& key, std::size_t message_bytes,
                          std::initializer_list<std::span<const std::byte>> before) {
    std::vector<std::byte> message(message_bytes);
    std::copy_n(bytes.begin(), std::min(bytes.size(), message_bytes - proof_bytes),
                message.begin());
    const auto fields = std::span(message).first(message_bytes - proof_bytes);
    std::vector<std::byte> said;
    for (const auto part : before) said.insert(said.end(), part.begin(), part.end());
    said.insert(said.end(), fields.begin(), fields.end());
    std::ranges::copy(hmac_sha256(key, {said}), message.end() - proof_bytes);
    return message;
  };
  const auto hello = decode_hello(
      keys, nonces, proven(keys.hello(), hello_bytes, {nonces.connector, nonces.acceptor}));
  if (hello.ok()) {
    require(hello->streams >= 1 && hello->streams <= max_streams);
    require(hello->stream >= 0 && hello->stream < hello->streams);
    require(check_geometry(hello->geometry).ok());
    require(hello->protection <= sys::Protection::encrypt);
  }
  const auto asked = encode_hello(keys, nonces, {});
  const auto reply = decode_reply(keys, nonces, {},
                                  proven(keys.reply(), reply_bytes,
                                         {nonces.connector, nonces.acceptor,
                                          std::span(asked).first(hello_bytes - proof_bytes)}));
  if (!reply.ok()) return;
  require(reply->verdict >= Reply::Verdict::join && reply->verdict <= Reply::Verdict::past_epoch);
  require(reply->protection <= sys::Protection::encrypt);
}

void fuzz_handshake(std::span<const std::byte> bytes, const HandshakeKeys& keys) {
  const Nonces nonces;
  (void)decode_greeting(bytes);
  require(!decode_challenge(keys, nonces.connector, bytes).ok());
  require(!decode_hello(keys, nonces, bytes).ok());
  require(!decode_reply(keys, nonces, {}, bytes).ok());
  fuzz_proven_handshake(bytes, keys);
}

const Key job_key = derive_key({}, "fuzz");

// A transport for each protection, made once.
Transport& transport_of(sys::Protection protection) {
  static std::array<std::unique_ptr<Transport>, 3> made;
  auto& transport = made[static_cast<std::size_t>(protection)];
  if (!transport)
    transport = std::move(*make_transport(
        {.key = job_key, .protection = protection, .protects_loopback = true, .interface = {}}));
  return *transport;
}

// Takes the input apart; zeros when it is used up.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t small() {
    if (rest_.empty()) return 0;
    const auto byte = std::to_integer<std::uint8_t>(rest_[0]);
    rest_ = rest_.subspan(1);
    return byte;
  }
  // Mostly small, sometimes anything.
  std::uint64_t number() {
    const std::uint8_t kind = small();
    if (kind < 200) return kind;
    std::uint64_t out = 0;
    for (int i = 0; i < (kind < 230 ? 2 : 8); ++i) out = out << 8 | small();
    return out;
  }

 private:
  std::span<const std::byte> rest_;
};

// Calls `step` until it is done; a victim that never answers is a finding.
template <class Step>
void wait_for(Step step) {
  for (int i = 0; i < 1'000'000; ++i) {
    if (step()) return;
    if (i > 100) std::this_thread::yield();
  }
  std::abort();
}

struct Ignored final : SentFrames {
  void frame_sent(std::uint64_t) override {}
};

// A rank that has the key, joined over real sockets with frames of the input's choice, against a
// connection that itself puts, gets, exposes memory, looks and gives up.
void fuzz_connection(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  Choices choices(bytes);
  static std::uint32_t channel = 0;
  const sys::Protection protection = protection_of(std::byte{choices.small()});
  Transport& transport = transport_of(protection);
  const ConnectionKey key{.channel = channel++};
  const std::string address = transport.address();  // with as many rails as the victim's
  auto made = transport.connect({.key = key,
                                 .ranks = ranks,
                                 .self = peer + 1,
                                 .peer = peer,
                                 .peer_address = address,
                                 .geometry = geometry});
  require(made.ok());
  Connection& victim = **made;

  const HandshakeKeys keys(job_key);
  SmallMessages messages{
      sys::Socket(*sys::begin_connect(*sys::Address::parse(transport.address())))};
  const auto receive = [&](std::size_t count) {
    std::vector<std::byte> out;
    wait_for([&] {
      require(transport.progress().ok());
      const auto got = messages.receive(count);
      require(got.ok());
      out.assign(got->begin(), got->end());
      return !out.empty();
    });
    return out;
  };
  Nonces nonces;
  wait_for([&] { return *sys::is_connected(messages.socket()); });
  require(messages.send(encode_greeting(nonces.connector)).ok());
  nonces.acceptor = *decode_challenge(keys, nonces.connector, receive(challenge_bytes));
  const Hello hello{
      .key = key, .self = peer, .peer = peer + 1, .geometry = geometry, .protection = protection};
  require(messages.send(encode_hello(keys, nonces, hello)).ok());
  require(decode_reply(keys, nonces, hello, receive(reply_bytes)).ok());
  wait_for([&] { return *victim.ready(); });

  const StreamKeys stream_keys = derive_stream_keys(keys, nonces, hello);
  auto poller = *Poller::make();
  Stream stream(messages.take_socket(), *poller);
  require(stream
              .seal({.protection = protection,
                     .send_key = stream_keys.connector,
                     .receive_key = stream_keys.acceptor})
              .ok());
  require(stream.watch().ok());
  Ignored ignored;
  bool is_over = false;
  const auto look = [&](const Status& status) {
    if (status.ok()) return;
    require(status.error().kind == ErrorKind::peer);
    require(status.error().peer >= -1 && status.error().peer < ranks);
    is_over = true;
  };
  std::array<std::uint64_t, geometry.signals> seen{};
  const std::array<std::byte, 100> content{};
  Guarded<exposed_bytes> piece;
  Guarded<got_bytes> destination;
  const auto exposed = victim.expose(piece.begin(), exposed_bytes);
  require(exposed.ok());
  while (!choices.empty() && !is_over) {
    const std::uint8_t what = choices.small();
    const auto frame = [&](Frame::Type type) {
      return Frame{.type = type,
                   .signal = choices.small() < 128 ? Frame::no_signal
                                                   : static_cast<std::uint32_t>(choices.number()),
                   .offset = choices.number(),
                   .bytes = choices.number(),
                   .value = choices.number(),
                   .pieces = choices.number()};
    };
    if (what % 8 < 5 && stream.has_room()) {
      stream.push(frame(static_cast<Frame::Type>(what % 8 + 1)), nullptr, 0);
    } else if (what == 7 && stream.has_room()) {
      Frame get = frame(Frame::Type::get);
      if (get.value < 128) get.value = exposed->key;
      stream.push(get, nullptr, 0);
    } else if (what == 15 && stream.has_room()) {
      stream.push(frame(Frame::Type::answer), nullptr, 0);
      stream.push({.type = Frame::Type::whole}, nullptr, 0);
    } else if (what == 23) {
      (void)victim.try_get(*exposed, what, destination.begin(), got_bytes);
    } else if (what == 31) {
      victim.withdraw(*exposed);
    } else if (what % 8 == 5) {
      (void)victim.try_put(content.data(), content.size(), what, {0, what});
    } else if (what % 8 == 6) {
      look(victim.check_peer());
    } else if (what == 255) {
      victim.abort({.kind = Fault::Kind::failed, .rank = 1});
    }
    stream.send(ignored);
    look(transport.progress());
    if (!is_over) look(victim.progress());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const std::uint64_t now = victim.signals()[i].load();
      require(now >= seen[i]);
      seen[i] = now;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const HandshakeKeys keys(job_key);
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  fuzz_handshake(bytes, keys);
  fuzz_inbox(bytes);
  fuzz_connection(bytes);
  return 0;
}
