#include "comm/bootstrap_handshake.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hmac.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

// "unisono" and the version of the handshake.
constexpr std::array<std::byte, 8> greeting{std::byte{'u'}, std::byte{'n'}, std::byte{'i'},
                                            std::byte{'s'}, std::byte{'o'}, std::byte{'n'},
                                            std::byte{'o'}, std::byte{1}};

using Nonce = std::array<std::byte, 32>;

Sha256Digest proof(std::string_view secret, std::string_view role,
                   std::span<const std::byte> server, std::span<const std::byte> client) {
  return hmac_sha256(as_bytes_of(secret), {as_bytes_of(role), server, client});
}

bool begins_with_greeting(std::span<const std::byte> bytes) {
  return std::equal(greeting.begin(), greeting.end(), bytes.begin());
}

}  // namespace

sys::Task<Status> prove_to_server(sys::World& world, sys::Stream& stream, std::string_view secret,
                                  std::int64_t deadline_ns, bool& secret_refused) {
  std::array<std::byte, challenge_bytes> challenge;
  Status received = co_await sys::read_exactly(stream, challenge, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  if (!begins_with_greeting(challenge))
    co_return environment_error("another program, or another version of unisono, listens at ",
                                stream.peer_address().text());
  const auto server_nonce = std::span(challenge).subspan(greeting.size());

  Nonce client_nonce;
  Status random = world.fill_random(client_nonce);
  if (!random.ok()) co_return random.take_error();
  const Sha256Digest own = proof(secret, "client", server_nonce, client_nonce);
  WireWriter answer;
  answer.raw(greeting);
  answer.raw(client_nonce);
  answer.raw(own);
  Status sent = co_await sys::write_all(stream, answer.bytes(), deadline_ns);
  if (!sent.ok()) co_return sent.take_error();

  std::array<std::byte, verdict_bytes> verdict;
  received = co_await sys::read_exactly(stream, verdict, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  const Sha256Digest expected = proof(secret, "server", server_nonce, client_nonce);
  if (verdict[0] == std::byte{1} && equal_in_constant_time(std::span(verdict).subspan(1), expected))
    co_return Status();
  secret_refused = true;
  co_return environment_error(stream.peer_address().text(),
                              " does not have this rank's secret; UNISONO_SECRET (or the file that "
                              "UNISONO_SECRET_FILE names) must be the same on every rank");
}

sys::Task<Status> prove_to_client(sys::World& world, sys::Stream& stream, std::string_view secret,
                                  std::int64_t deadline_ns) {
  Nonce server_nonce;
  Status random = world.fill_random(server_nonce);
  if (!random.ok()) co_return random.take_error();
  WireWriter challenge;
  challenge.raw(greeting);
  challenge.raw(server_nonce);
  Status sent = co_await sys::write_all(stream, challenge.bytes(), deadline_ns);
  if (!sent.ok()) co_return sent.take_error();

  std::array<std::byte, answer_bytes> answer;
  Status received = co_await sys::read_exactly(stream, answer, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  if (!begins_with_greeting(answer))
    co_return environment_error("the other side is no unisono of this version");
  const auto client_nonce = std::span(answer).subspan(greeting.size(), 32);
  const auto code = std::span(answer).subspan(greeting.size() + 32);
  const Sha256Digest expected = proof(secret, "client", server_nonce, client_nonce);
  const bool is_right = equal_in_constant_time(code, expected);

  WireWriter verdict;
  verdict.number(static_cast<std::uint8_t>(is_right));
  const Sha256Digest own =
      is_right ? proof(secret, "server", server_nonce, client_nonce) : Sha256Digest{};
  verdict.raw(own);
  sent = co_await sys::write_all(stream, verdict.bytes(), deadline_ns);
  if (!is_right) co_return environment_error("the other side does not have the job's secret");
  if (!sent.ok()) co_return sent.take_error();
  co_return Status();
}

}  // namespace unisono::comm
