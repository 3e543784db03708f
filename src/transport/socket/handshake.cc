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
constexpr std::uint64_t magic = 0x314f4e4f53494e55;

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

Sha256Digest prove_hello(std::string_view secret, const Nonce& challenge,
                         std::span<const std::byte> fields) {
  return hmac_sha256(as_bytes_of(secret), {as_bytes_of("unisono hello"), challenge, fields});
}

Sha256Digest prove_reply(std::string_view secret, const Nonce& challenge, const Hello& hello,
                         std::span<const std::byte> fields) {
  const auto stream = static_cast<std::byte>(hello.stream);
  return hmac_sha256(as_bytes_of(secret), {as_bytes_of("unisono reply"), challenge, hello.nonce,
                                           std::span(&stream, 1), fields});
}

std::vector<std::byte> with_proof(WireWriter& fields, const Sha256Digest& proof) {
  fields.raw(proof);
  return fields.take();
}

// The fields of a message of `bytes`, its proof being right.
template <class Prove>
Result<std::span<const std::byte>> proven(std::span<const std::byte> message, std::size_t bytes,
                                          Prove prove) {
  if (message.size() != bytes)
    return environment_error("a message of ", message.size(), " bytes instead of ", bytes);
  const auto fields = message.first(bytes - proof_bytes);
  if (!equal_in_constant_time(prove(fields), message.last(proof_bytes)))
    return environment_error("no proof of the job's secret");
  return fields;
}

}  // namespace

Result<Nonce> fresh_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return system_error("drawing a nonce", errno);
  return nonce;
}

std::vector<std::byte> encode_challenge(const Nonce& nonce) {
  WireWriter writer;
  writer.number(magic);
  writer.raw(nonce);
  return writer.take();
}

Result<Nonce> decode_challenge(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto found = reader.number<std::uint64_t>();
  const auto drawn = reader.raw(sizeof(Nonce));
  if (!reader.done() || found != magic)
    return environment_error("what listens there is no transport of this version");
  Nonce nonce;
  std::copy(drawn.begin(), drawn.end(), nonce.begin());
  return nonce;
}

std::vector<std::byte> encode_hello(const Hello& hello, std::string_view secret,
                                    const Nonce& challenge) {
  WireWriter writer;
  writer.number(magic);
  writer.raw(hello.nonce);
  writer.number(static_cast<std::uint16_t>(hello.stream));
  writer.number(static_cast<std::uint16_t>(hello.streams));
  writer.number(hello.key.communicator);
  writer.number(hello.key.epoch);
  writer.number(hello.key.channel);
  writer.number(static_cast<std::uint32_t>(hello.self));
  writer.number(static_cast<std::uint32_t>(hello.peer));
  write(writer, hello.geometry);
  return with_proof(writer, prove_hello(secret, challenge, writer.bytes()));
}

Result<Hello> decode_hello(std::span<const std::byte> bytes, std::string_view secret,
                           const Nonce& challenge) {
  UNISONO_ASSIGN(const auto fields, proven(bytes, hello_bytes, [&](auto proved) {
                   return prove_hello(secret, challenge, proved);
                 }));
  WireReader reader(fields);
  const auto found = reader.number<std::uint64_t>();
  Hello hello;
  const auto nonce = reader.raw(sizeof(Nonce));
  std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
  hello.stream = reader.number<std::uint16_t>();
  hello.streams = reader.number<std::uint16_t>();
  hello.key.communicator = reader.number<std::uint64_t>();
  hello.key.epoch = reader.number<std::uint32_t>();
  hello.key.channel = reader.number<std::uint32_t>();
  hello.self = static_cast<int>(reader.number<std::uint32_t>());
  hello.peer = static_cast<int>(reader.number<std::uint32_t>());
  hello.geometry = read_geometry(reader);
  if (found != magic) return environment_error("a message of another version");
  if (hello.streams < 1 || hello.streams > max_streams || hello.stream >= hello.streams)
    return environment_error("stream ", hello.stream, " of ", hello.streams, "; there are 1 to ",
                             max_streams);
  UNISONO_TRY(check_request({.key = hello.key,
                             .self = hello.self,
                             .peer = hello.peer,
                             .peer_address = {},
                             .geometry = hello.geometry}));
  return hello;
}

std::vector<std::byte> encode_reply(const Reply& reply, std::string_view secret,
                                    const Nonce& challenge, const Hello& hello) {
  WireWriter writer;
  writer.number(static_cast<std::uint32_t>(reply.verdict));
  write(writer, reply.geometry);
  return with_proof(writer, prove_reply(secret, challenge, hello, writer.bytes()));
}

Result<Reply> decode_reply(std::span<const std::byte> bytes, std::string_view secret,
                           const Nonce& challenge, const Hello& hello) {
  UNISONO_ASSIGN(const auto fields, proven(bytes, reply_bytes, [&](auto proved) {
                   return prove_reply(secret, challenge, hello, proved);
                 }));
  WireReader reader(fields);
  Reply reply;
  reply.verdict = static_cast<Reply::Verdict>(reader.number<std::uint32_t>());
  reply.geometry = read_geometry(reader);
  if (reply.verdict != Reply::Verdict::join && reply.verdict != Reply::Verdict::other_geometry)
    return environment_error("an unknown verdict, ", static_cast<std::uint32_t>(reply.verdict));
  return reply;
}

}  // namespace unisono::transport::socket
