#include "comm/control/handshake.h"

#include <algorithm>

#include "base/error.h"
#include "base/hmac.h"
#include "base/try.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

// "uni" and the version of the handshake.
constexpr std::array<std::byte, 4> greeting{std::byte{'u'}, std::byte{'n'}, std::byte{'i'},
                                            std::byte{5}};
constexpr std::size_t server_nonce_bytes = challenge_bytes - greeting.size();
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t number_bytes = sizeof(std::uint64_t);
constexpr std::byte visit_mark{'v'};
constexpr std::size_t short_proof_bytes = 8;
// In place of an address' length.
constexpr std::uint16_t say_enrol = 0xffff;

bool begins_with_greeting(std::span<const std::byte> bytes) {
  return std::equal(greeting.begin(), greeting.end(), bytes.begin());
}

// All that both ends have said but the proofs.
struct Conversation {
  std::span<const std::byte> server_nonce;
  std::span<const std::byte> client_nonce;
  std::array<std::byte, 3> choices{};  // purpose, the client's protection, the server's
  std::span<const std::byte> key_number;

  Key derive(const Key& key, std::string_view label) const {
    return derive_key(key, label, {server_nonce, client_nonce, choices, key_number});
  }
  // The server's choice comes after the client's proof.
  Key client_proof(const Key& key) const {
    return derive_key(key, "unisono control client's proof",
                      {server_nonce, client_nonce, std::span(choices).first(2), key_number});
  }
  Key server_proof(const Key& key) const { return derive(key, "unisono control server's proof"); }
};

std::span<const std::byte> short_proof(const Key& proof) {
  return std::span(proof).first(short_proof_bytes);
}

// `asked` is a visit up to its proof.
Key visitor_proof(const Key& key, std::span<const std::byte> server_nonce,
                  std::span<const std::byte> asked) {
  return derive_key(key, "unisono control visitor's proof", {server_nonce, asked});
}
Key directions_proof(const Key& key, std::span<const std::byte> server_nonce,
                     std::span<const std::byte> asked, std::span<const std::byte> told) {
  return derive_key(key, "unisono control directions", {server_nonce, asked, told});
}

bool is_visit(std::span<const std::byte> answer) { return answer[0] == visit_mark; }

// Beside a visit's proof.
std::span<const std::byte> asked_by(std::span<const std::byte> visit) {
  return visit.first(visit_bytes - short_proof_bytes);
}

Error another_secret(const sys::Address& server) {
  return environment_error(server.text(),
                           " does not have this rank's secret; UNISONO_SECRET (or the file that "
                           "UNISONO_SECRET_FILE names) must be the same on every rank");
}

Error another_program(const sys::Address& server) {
  return environment_error("another program, or another version of unisono, listens at ",
                           server.text());
}

// The answer's parts, of which nothing is known to be right.
struct Answer {
  explicit Answer(std::span<const std::byte> bytes)
      : is_ours(begins_with_greeting(bytes)),
        purpose(bytes[greeting.size()]),
        protection(bytes[greeting.size() + 1]),
        key_number(bytes.subspan(greeting.size() + 2, number_bytes)),
        nonce(bytes.subspan(greeting.size() + 2 + number_bytes, nonce_bytes)),
        proof(bytes.subspan(greeting.size() + 2 + number_bytes + nonce_bytes)) {}

  std::pair<Purpose, std::uint64_t> key() const {
    return {static_cast<Purpose>(purpose), WireReader(key_number).number<std::uint64_t>()};
  }

  bool is_ours;
  std::byte purpose;
  std::byte protection;
  std::span<const std::byte> key_number;
  std::span<const std::byte> nonce;
  std::span<const std::byte> proof;
};

constexpr std::byte as_byte(sys::Protection protection) {
  return static_cast<std::byte>(protection);
}

Error disagreement(sys::Protection here, std::byte there, const sys::Address& peer) {
  constexpr auto strongest = as_byte(sys::Protection::encrypt);
  const std::string_view theirs =
      there <= strongest ? sys::name(static_cast<sys::Protection>(there)) : "unknown";
  return misuse("the wire protection of the control plane is '", sys::name(here),
                "' on this rank and '", theirs, "' on the rank at ", peer.text(),
                "; UNISONO_WIRE must be the same on every rank");
}

}  // namespace

Key enrolment_key(std::string_view secret, std::string_view shared_key) {
  const Key key = derive_key(as_bytes_of(secret), "unisono control enrolment");
  if (shared_key.empty()) return key;
  return derive_key(key, "unisono control shared key", {as_bytes_of(shared_key)});
}

Key link_key(const Key& job_key) { return derive_key(job_key, "unisono control link"); }

Result<std::unique_ptr<Doorkeeper>> Doorkeeper::make(sys::World& world, const WireProtection& wire,
                                                     std::size_t most_waiting) {
  std::unique_ptr<Doorkeeper> out(new Doorkeeper(wire, most_waiting));
  UNISONO_TRY(world.fill_random(out->own_));
  return out;
}

Doorkeeper::~Doorkeeper() {
  erase(own_);
  for (auto& [which, key] : keys_) erase(key);
}

void Doorkeeper::admit(Purpose purpose, const Key& key, std::uint64_t number) {
  keys_[{purpose, number}] = key;
}

void Doorkeeper::forget(Purpose purpose, std::uint64_t number) {
  const auto found = keys_.find({purpose, number});
  if (found == keys_.end()) return;
  erase(found->second);
  keys_.erase(found);
}

Key Doorkeeper::derived(std::string_view purpose, std::uint64_t number) const {
  return derive_key(own_, purpose, {std::as_bytes(std::span(&number, 1))});
}

std::vector<std::byte> Doorkeeper::challenge(std::uint64_t number) const {
  WireWriter out;
  out.raw(greeting);
  out.raw(server_nonce(number));
  return out.take();
}

std::vector<std::byte> Doorkeeper::server_nonce(std::uint64_t number) const {
  const Key random = derived("nonce", number);
  return {random.begin(), random.begin() + server_nonce_bytes};
}

std::size_t Doorkeeper::answer_bytes(std::span<const std::byte> begin) const {
  return begin.empty() || is_visit(begin) ? visit_bytes : comm::answer_bytes;
}

// As long as a welcome or as directions, so that a rank with another secret knows it by the proof;
// and long enough for a rank of version 2, which waits for a longer challenge.
std::vector<std::byte> Doorkeeper::refusal(std::uint64_t number,
                                           std::span<const std::byte> answer) const {
  const Key random = derived("refusal", number);
  WireWriter out;
  if (!answer.empty() && is_visit(answer)) {
    out.number(std::uint16_t{0});
    out.raw(std::span(random).first(sizeof(Directions::rank) + short_proof_bytes));
  } else {
    out.number(std::uint8_t{0});
    out.raw(random);
  }
  return out.take();
}

Status Doorkeeper::check(std::uint64_t number, std::span<const std::byte> bytes) const {
  if (is_visit(bytes)) {
    const auto admitting = keys_.find({Purpose::enrolment, 0});
    if (admitting == keys_.end() ||
        !equal_in_constant_time(
            bytes.last(short_proof_bytes),
            short_proof(visitor_proof(admitting->second, server_nonce(number), asked_by(bytes)))))
      return environment_error("the peer does not have this job's secret");
    return {};
  }
  const Answer answer(bytes);
  if (!answer.is_ours)
    return environment_error("the peer runs another program, or another version of unisono");
  const auto key = keys_.find(answer.key());
  if (key == keys_.end()) return environment_error("the peer does not have this job's secret");
  const auto own_nonce = server_nonce(number);
  const Conversation said{
      own_nonce, answer.nonce, {answer.purpose, answer.protection}, answer.key_number};
  if (!equal_in_constant_time(answer.proof, said.client_proof(key->second)))
    return environment_error("the peer does not have this job's secret");
  return {};
}

sys::Task<Result<Doorkeeper::Guest>> Doorkeeper::welcome(sys::Admitted admitted,
                                                         std::int64_t deadline_ns) const {
  if (is_visit(admitted.answer))
    co_return environment_error("it asks for its way, which nobody comes by here");
  const Answer answer(admitted.answer);
  sys::Stream& stream = *admitted.stream;
  const sys::Protection protection = wire_.on(stream.local_address(), stream.peer_address());
  const auto own_nonce = server_nonce(admitted.number);
  const Conversation said{own_nonce,
                          answer.nonce,
                          {answer.purpose, answer.protection, as_byte(protection)},
                          answer.key_number};
  const auto [purpose, number] = answer.key();
  const auto found = keys_.find({purpose, number});
  // check() has found it, and its invitation may have ended since.
  if (found == keys_.end())
    co_return environment_error("the key that it has proved has ended meanwhile");
  const Key key = found->second;
  WireWriter welcome;
  welcome.number(static_cast<std::uint8_t>(protection));
  welcome.raw(said.server_proof(key));
  Status sent = co_await sys::write_all(stream, welcome.bytes(), deadline_ns);
  if (!sent.ok()) co_return sent.take_error();
  if (answer.protection != as_byte(protection))
    co_return disagreement(protection, answer.protection, stream.peer_address());
  Session session;
  session.protection = protection;
  session.send = said.derive(key, "unisono control to client");
  session.receive = said.derive(key, "unisono control to server");
  session.wrap = said.derive(key, "unisono control wrap");
  auto channel = Channel::make(std::move(admitted.stream), session);
  if (!channel.ok()) co_return channel.take_error();
  co_return Guest{purpose, number, std::move(*channel)};
}

std::optional<Visitor> Doorkeeper::visit_of(const sys::Admitted& admitted) {
  if (!is_visit(admitted.answer)) return std::nullopt;
  WireReader in(std::span(admitted.answer).subspan(1));
  const auto rank = in.number<std::uint32_t>();
  return Visitor{rank, in.number<std::uint32_t>()};
}

sys::Task<Status> Doorkeeper::direct(sys::Admitted admitted, Directions directions,
                                     std::int64_t deadline_ns) const {
  const bool is_next = directions.kind == Directions::Kind::next;
  WireWriter told;
  told.number(is_next ? static_cast<std::uint16_t>(directions.address.size())
                      : static_cast<std::uint16_t>(
                            directions.kind == Directions::Kind::enrol ? say_enrol : 0));
  told.number(is_next ? directions.rank : 0);
  if (is_next) told.raw(as_bytes_of(directions.address));
  const Key proof =
      directions_proof(keys_.at({Purpose::enrolment, 0}), server_nonce(admitted.number),
                       asked_by(admitted.answer), told.bytes());
  told.raw(short_proof(proof));
  Status sent = co_await sys::write_all(*admitted.stream, told.bytes(), deadline_ns);
  co_return std::move(sent);
}

sys::Task<Result<Directions>> ask_for_directions(std::unique_ptr<sys::Stream> stream,
                                                 Visitor visitor, const Key& key,
                                                 std::int64_t deadline_ns, Refusal& refusal) {
  refusal = Refusal::dropped;
  std::array<std::byte, challenge_bytes> challenge;
  Status done = co_await sys::read_exactly(*stream, challenge, deadline_ns);
  if (!done.ok()) co_return done.take_error();
  if (!begins_with_greeting(challenge)) {
    refusal = Refusal::none;
    co_return another_program(stream->peer_address());
  }
  const auto server_nonce = std::span(challenge).subspan(greeting.size());
  WireWriter asked;
  asked.number(std::to_integer<std::uint8_t>(visit_mark));
  asked.number(visitor.rank);
  asked.number(visitor.world_size);
  const Key proof = visitor_proof(key, server_nonce, asked.bytes());
  WireWriter said;
  said.raw(asked.bytes());
  said.raw(short_proof(proof));
  done = co_await sys::write_all(*stream, said.bytes(), deadline_ns);
  if (!done.ok()) co_return done.take_error();

  constexpr std::size_t head_bytes = sizeof(std::uint16_t) + sizeof(Directions::rank);
  std::vector<std::byte> told(head_bytes);
  done = co_await sys::read_exactly(*stream, told, deadline_ns);
  if (!done.ok()) co_return done.take_error();
  WireReader in(told);
  const auto length = in.number<std::uint16_t>();
  Directions out;
  const auto rank = in.number<std::uint32_t>();
  std::size_t address_bytes = 0;
  if (length == say_enrol) {
    out.kind = Directions::Kind::enrol;
  } else if (length > 0) {
    out.kind = Directions::Kind::next;
    out.rank = rank;
    address_bytes = length;
  }
  if (address_bytes > max_address_bytes)
    co_return environment_error(stream->peer_address().text(), " told an address of ",
                                address_bytes, " bytes; addresses have at most ",
                                max_address_bytes);
  told.resize(head_bytes + address_bytes + short_proof_bytes);
  done = co_await sys::read_exactly(*stream, std::span(told).subspan(head_bytes), deadline_ns);
  if (!done.ok()) co_return done.take_error();
  const auto spoken = std::span<const std::byte>(told).first(head_bytes + address_bytes);
  const Key right = directions_proof(key, server_nonce, asked.bytes(), spoken);
  if (!equal_in_constant_time(std::span(told).last(short_proof_bytes), short_proof(right))) {
    refusal = Refusal::secret;
    co_return another_secret(stream->peer_address());
  }
  refusal = Refusal::none;
  for (const std::byte letter : spoken.subspan(head_bytes))
    out.address += static_cast<char>(letter);
  co_return std::move(out);
}

sys::Task<Result<std::unique_ptr<Channel>>> prove_to_server(
    sys::World& world, std::unique_ptr<sys::Stream> stream, Purpose purpose, const Key& key,
    const WireProtection& wire, std::int64_t deadline_ns, Refusal& refusal,
    std::uint64_t key_number) {
  refusal = Refusal::dropped;
  std::array<std::byte, challenge_bytes> challenge;
  Status received = co_await sys::read_exactly(*stream, challenge, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  if (!begins_with_greeting(challenge)) {
    refusal = Refusal::none;
    co_return another_program(stream->peer_address());
  }
  std::array<std::byte, nonce_bytes> client_nonce;
  Status random = world.fill_random(client_nonce);
  if (!random.ok()) co_return random.take_error();
  const sys::Protection protection = wire.on(stream->local_address(), stream->peer_address());
  WireWriter which;
  which.number(key_number);
  Conversation said{std::span(challenge).subspan(greeting.size()),
                    client_nonce,
                    {static_cast<std::byte>(purpose), as_byte(protection)},
                    which.bytes()};
  WireWriter answer;
  answer.raw(greeting);
  answer.raw(std::span(said.choices).first(2));
  answer.raw(said.key_number);
  answer.raw(client_nonce);
  answer.raw(said.client_proof(key));
  Status sent = co_await sys::write_all(*stream, answer.bytes(), deadline_ns);
  if (!sent.ok()) co_return sent.take_error();

  std::array<std::byte, welcome_bytes> welcome;
  received = co_await sys::read_exactly(*stream, welcome, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  said.choices[2] = welcome[0];
  if (!equal_in_constant_time(std::span(welcome).subspan(1), said.server_proof(key))) {
    refusal = Refusal::secret;
    co_return another_secret(stream->peer_address());
  }
  if (welcome[0] != as_byte(protection)) {
    refusal = Refusal::disagree;
    co_return disagreement(protection, welcome[0], stream->peer_address());
  }
  refusal = Refusal::none;
  Session session;
  session.protection = protection;
  session.send = said.derive(key, "unisono control to server");
  session.receive = said.derive(key, "unisono control to client");
  session.wrap = said.derive(key, "unisono control wrap");
  Result<std::unique_ptr<Channel>> channel = Channel::make(std::move(stream), session);
  co_return std::move(channel);
}

}  // namespace unisono::comm
