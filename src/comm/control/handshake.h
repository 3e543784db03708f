// Proof of a secret, both ways, before anything else is read from a connection, and the keys that
// what follows is protected with.
//
//   server → client   magic, version, server's nonce
//   client → server   magic, version, purpose, protection, key's number, client's nonce, proof
//   server → client   protection, server's proof
//
// Each message has a fixed length, so no length is ever read from a stranger. The server's nonce
// has 12 bytes, the client's and the proofs have 32. A proof is derived (HKDF) from the secret and
// all that was said before it, so that a recorded conversation is useless, and both ends know that
// they agree on everything; the two sides' labels make a reflected proof useless. Who does not have
// the secret gets 33 random bytes for an answer, which tell nothing but to who has another secret
// that it is another one.
//
// The server keeps nothing of a connection before the proof: nonces are derived from the
// connection's number. A server that admits by several keys for one purpose knows the right one by
// its number, which is no secret: that of an invitation, else 0.
//
// A visit is less than that: a rank that looks for its parent asks a rank above it who the next one
// on its way is. Many visit one rank, so little is said, and the connection ends:
//
//   server → client   magic, version, server's nonce
//   client → server   'v', rank, number of ranks, client's proof
//   server → client   the address' length, rank, address, server's proof
//
// Its proofs have 8 bytes: who guesses has one try a connection. Who repeats what a server has said
// before can lead a rank astray, to where nobody proves the secret; nothing else follows from a
// visit. Errors are for who enrols.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/key.h"
#include "comm/control/channel.h"
#include "sys/world.h"

namespace unisono::comm {

// What a secret admits to. Each purpose has a key of its own.
enum class Purpose : std::uint8_t {
  enrolment = 1,  // with the secret that ranks are started with, or an invitation's
  link = 2,       // between two ranks, with the job's key, which rank 0 made
};
Key enrolment_key(std::string_view secret, std::string_view shared_key = {});
Key link_key(const Key& job_key);

inline constexpr std::size_t challenge_bytes = 4 + 12;
inline constexpr std::size_t answer_bytes = 4 + 1 + 1 + 8 + 32 + 32;
inline constexpr std::size_t welcome_bytes = 1 + 32;
inline constexpr std::size_t visit_bytes = 1 + 4 + 4 + 8;

struct Visitor {
  std::uint32_t rank = 0;  // neither is checked
  std::uint32_t world_size = 0;
};

// What a visitor is told.
struct Directions {
  enum class Kind : std::uint8_t {
    come_again,  // later
    enrol,       // here, and hear what is wrong
    next,        // ask the rank at the address
  };
  Kind kind = Kind::come_again;
  std::uint32_t rank = 0;  // not checked, as the address
  std::string address;
};

// The server's side of a listener.
class Doorkeeper final : public sys::Gate {
 public:
  // At most `most_waiting` connections are held that have not proved anything.
  static Result<std::unique_ptr<Doorkeeper>> make(sys::World& world, const WireProtection& wire,
                                                  std::size_t most_waiting);
  ~Doorkeeper() override;
  Doorkeeper(const Doorkeeper&) = delete;
  Doorkeeper& operator=(const Doorkeeper&) = delete;

  // From now on who proves this key is let in.
  void admit(Purpose purpose, const Key& key, std::uint64_t number = 0);
  // From now on who proves that key is refused as one who has no key is.
  void forget(Purpose purpose, std::uint64_t number);

  struct Guest {
    Purpose purpose = Purpose::enrolment;
    std::uint64_t number = 0;  // of the key that it has proved
    std::unique_ptr<Channel> channel;
  };
  // Proves the key to who has proved it. A misuse error if the two ends protect frames in different
  // ways.
  sys::Task<Result<Guest>> welcome(sys::Admitted admitted, std::int64_t deadline_ns) const;

  // What it asks, if it is a visit; then it is given directions instead of a welcome.
  static std::optional<Visitor> visit_of(const sys::Admitted& admitted);
  sys::Task<Status> direct(sys::Admitted admitted, Directions directions,
                           std::int64_t deadline_ns) const;

  std::vector<std::byte> challenge(std::uint64_t number) const override;
  std::size_t answer_bytes(std::span<const std::byte> begin) const override;
  Status check(std::uint64_t number, std::span<const std::byte> answer) const override;
  std::vector<std::byte> refusal(std::uint64_t number,
                                 std::span<const std::byte> answer) const override;
  std::size_t most_waiting() const override { return most_waiting_; }

 private:
  Doorkeeper(const WireProtection& wire, std::size_t most_waiting)
      : wire_(wire), most_waiting_(most_waiting) {}
  Key derived(std::string_view purpose, std::uint64_t number) const;
  std::vector<std::byte> server_nonce(std::uint64_t number) const;

  const WireProtection wire_;
  const std::size_t most_waiting_;
  Key own_{};  // nobody else has it
  std::map<std::pair<Purpose, std::uint64_t>, Key> keys_;
};

// How a client's attempt ended.
enum class Refusal : std::uint8_t {
  none,
  dropped,   // the connection ended before the proof: the server was busy, say; try again
  secret,    // the other side has another secret, which trying again cannot mend
  disagree,  // about how frames are protected; neither can that
};
sys::Task<Result<std::unique_ptr<Channel>>> prove_to_server(
    sys::World& world, std::unique_ptr<sys::Stream> stream, Purpose purpose, const Key& key,
    const WireProtection& wire, std::int64_t deadline_ns, Refusal& refusal,
    std::uint64_t key_number = 0);
// The client's side of a visit; `key` is an enrolment's.
sys::Task<Result<Directions>> ask_for_directions(std::unique_ptr<sys::Stream> stream,
                                                 Visitor visitor, const Key& key,
                                                 std::int64_t deadline_ns, Refusal& refusal);

}  // namespace unisono::comm
