#include "transport/socket/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/hmac.h"
#include "base/try.h"
#include "base/wire.h"
#include "transport/request.h"

namespace unisono::transport::socket {
namespace {

// "UNISONO" and the version of everything that travels on a stream.
constexpr std::uint64_t magic = 0x354f4e4f53494e55;

void write(WireWriter& writer, const Geometry& geometry) {
  writer.number(std::uint64_t{geometry.region_bytes});
  writer.number(static_cast<std::uint32_t>(geometry.signals));
  writer.number(geometry.layout);
}

Geometry read_geometry(WireReader& reader) {
  Geometry geometry;
  geometry.region_bytes = reader.number<std::uint64_t>();
  geometry.signals = static_cast<int>(reader.number<std::uint32_t>());
  geometry.layout = reader.number<std::uint64_t>();
  return geometry;
}

std::vector<std::byte> fields_of(const Hello& hello) {
  WireWriter writer;
  writer.number(static_cast<std::uint16_t>(hello.stream));
  writer.number(static_cast<std::uint16_t>(hello.streams));
  writer.number(hello.generation);
  writer.number(hello.key.communicator);
  writer.number(hello.key.epoch);
  writer.number(hello.key.channel);
  writer.number(hello.self);
  writer.number(hello.peer);
  write(writer, hello.geometry);
  writer.number(static_cast<std::uint8_t>(hello.protection));
  return writer.take();
}

std::vector<std::byte> with_proof(std::vector<std::byte> fields, const Sha256Digest& proof) {
  fields.insert(fields.end(), proof.begin(), proof.end());
  return fields;
}

// The fields of a message of `bytes`, its proof being right.
template <class Prove>
Result<std::span<const std::byte>> proven(std::span<const std::byte> message, std::size_t bytes,
                                          Prove prove) {
  if (message.size() != bytes)
    return environment_error("the handshake message has ", message.size(), " bytes; it must have ",
                             bytes);
  const auto fields = message.first(bytes - proof_bytes);
  if (!equal_in_constant_time(prove(fields), message.last(proof_bytes)))
    return environment_error("the peer does not have the job's key");
  return fields;
}

Result<sys::Protection> protection_of(std::uint8_t number) {
  if (number > static_cast<std::uint8_t>(sys::Protection::encrypt))
    return environment_error("the peer asked for the unknown wire protection ", number);
  return static_cast<sys::Protection>(number);
}

Nonce nonce_of(std::span<const std::byte> bytes) {
  Nonce nonce;
  std::ranges::copy(bytes, nonce.begin());
  return nonce;
}

}  // namespace

Result<Nonce> fresh_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return system_error("generating a nonce", errno);
  return nonce;
}

HandshakeKeys::HandshakeKeys(const Key& job_key)
    : challenge_(derive_key(job_key, "unisono socket challenge")),
      hello_(derive_key(job_key, "unisono socket hello")),
      reply_(derive_key(job_key, "unisono socket reply")),
      streams_(derive_key(job_key, "unisono socket streams")) {}

HandshakeKeys::~HandshakeKeys() {
  for (Key* key : {&challenge_, &hello_, &reply_, &streams_}) erase(*key);
}

std::array<std::byte, greeting_bytes> encode_greeting(const Nonce& connector) {
  std::array<std::byte, greeting_bytes> bytes;
  for (std::size_t i = 0; i < sizeof magic; ++i)
    bytes[i] = static_cast<std::byte>(magic >> (8 * i));
  std::ranges::copy(connector, bytes.begin() + sizeof magic);
  return bytes;
}

Result<Nonce> decode_greeting(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto found = reader.number<std::uint64_t>();
  const auto drawn = reader.raw(sizeof(Nonce));
  if (!reader.done() || found != magic)
    return environment_error("the peer runs another program, or another version of unisono");
  return nonce_of(drawn);
}

std::array<std::byte, challenge_bytes> encode_challenge(const HandshakeKeys& keys,
                                                        const Nonces& nonces) {
  std::array<std::byte, challenge_bytes> bytes;
  const auto proof = hmac_sha256(keys.challenge(), {nonces.connector, nonces.acceptor});
  std::ranges::copy(proof, std::ranges::copy(nonces.acceptor, bytes.begin()).out);
  return bytes;
}

Result<Nonce> decode_challenge(const HandshakeKeys& keys, const Nonce& connector,
                               std::span<const std::byte> bytes) {
  UNISONO_ASSIGN(const auto drawn, proven(bytes, challenge_bytes, [&](auto acceptor) {
                   return hmac_sha256(keys.challenge(), {connector, acceptor});
                 }));
  return nonce_of(drawn);
}

std::vector<std::byte> encode_hello(const HandshakeKeys& keys, const Nonces& nonces,
                                    const Hello& hello) {
  const auto fields = fields_of(hello);
  return with_proof(fields, hmac_sha256(keys.hello(), {nonces.connector, nonces.acceptor, fields}));
}

Result<Hello> decode_hello(const HandshakeKeys& keys, const Nonces& nonces,
                           std::span<const std::byte> bytes) {
  UNISONO_ASSIGN(const auto fields, proven(bytes, hello_bytes, [&](auto said) {
                   return hmac_sha256(keys.hello(), {nonces.connector, nonces.acceptor, said});
                 }));
  WireReader reader(fields);
  Hello hello;
  hello.stream = reader.number<std::uint16_t>();
  hello.streams = reader.number<std::uint16_t>();
  hello.generation = reader.number<std::uint32_t>();
  hello.key.communicator = reader.number<std::uint64_t>();
  hello.key.epoch = reader.number<std::uint32_t>();
  hello.key.channel = reader.number<std::uint32_t>();
  hello.self = reader.number<std::uint32_t>();
  hello.peer = reader.number<std::uint32_t>();
  hello.geometry = read_geometry(reader);
  UNISONO_ASSIGN(hello.protection, protection_of(reader.number<std::uint8_t>()));
  if (hello.streams > max_streams || hello.stream >= hello.streams)
    return environment_error("the peer announced stream ", hello.stream, " of ", hello.streams,
                             "; a connection has 1 to ", max_streams, " streams");
  UNISONO_TRY(check_geometry(hello.geometry));
  return hello;
}

std::vector<std::byte> encode_reply(const HandshakeKeys& keys, const Nonces& nonces,
                                    const Hello& hello, const Reply& reply) {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(reply.verdict));
  write(writer, reply.geometry);
  writer.number(static_cast<std::uint8_t>(reply.protection));
  const auto asked = fields_of(hello);
  const auto fields = writer.take();
  return with_proof(fields,
                    hmac_sha256(keys.reply(), {nonces.connector, nonces.acceptor, asked, fields}));
}

Result<Reply> decode_reply(const HandshakeKeys& keys, const Nonces& nonces, const Hello& hello,
                           std::span<const std::byte> bytes) {
  const auto asked = fields_of(hello);
  UNISONO_ASSIGN(const auto fields, proven(bytes, reply_bytes, [&](auto said) {
                   return hmac_sha256(keys.reply(),
                                      {nonces.connector, nonces.acceptor, asked, said});
                 }));
  WireReader reader(fields);
  Reply reply;
  reply.verdict = static_cast<Reply::Verdict>(reader.number<std::uint8_t>());
  reply.geometry = read_geometry(reader);
  UNISONO_ASSIGN(reply.protection, protection_of(reader.number<std::uint8_t>()));
  if (reply.verdict < Reply::Verdict::join || reply.verdict > Reply::Verdict::past_epoch)
    return environment_error("the peer answered with the unknown verdict ",
                             static_cast<int>(reply.verdict));
  return reply;
}

StreamKeys derive_stream_keys(const HandshakeKeys& keys, const Nonces& nonces, const Hello& hello) {
  const auto fields = fields_of(hello);
  const auto derive = [&](std::string_view purpose) {
    return derive_key(keys.streams(), purpose, {nonces.connector, nonces.acceptor, fields});
  };
  return {.connector = derive("sealed by the connector"),
          .acceptor = derive("sealed by the acceptor")};
}

}  // namespace unisono::transport::socket
