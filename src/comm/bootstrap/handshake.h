// Proof of a secret, both ways, before anything else is read from a connection, and the keys that
// what follows is protected with.
//
//   server → client   magic, version, server's nonce
//   client → server   magic, version, purpose, protection, client's nonce, client's proof
//   server → client   protection, server's proof
//
// Each message has a fixed length, so no length is ever read from a stranger. Nonces and proofs
// have 32 bytes. A proof is derived (HKDF) from the secret and all that was said before it, so that
// a recorded conversation is useless, and both ends know that they agree on everything; the two
// sides' labels make a reflected proof useless. Who does not have the secret gets 33 random bytes
// for an answer, which tell nothing but to who has another secret that it is another one.
//
// The server keeps nothing of a connection before the proof: nonces are derived from the
// connection's number.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "base/key.h"
#include "comm/bootstrap/channel.h"
#include "sys/world.h"

namespace unisono::comm {

// What a secret admits to. Each purpose has a key of its own.
enum class Purpose : std::uint8_t {
  enrolment = 1,  // with the secret that ranks are started with, or an invitation's
  link = 2,       // between two ranks, with the job's key, which rank 0 made
};
Key enrolment_key(std::string_view secret, std::string_view shared_key = {});
Key link_key(const Key& job_key);

inline constexpr std::size_t challenge_bytes = 8 + 32;
inline constexpr std::size_t answer_bytes = 8 + 1 + 1 + 32 + 32;
inline constexpr std::size_t welcome_bytes = 1 + 32;

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
  void admit(Purpose purpose, const Key& key);

  struct Guest {
    Purpose purpose = Purpose::enrolment;
    std::unique_ptr<Channel> channel;
  };
  // Proves the key to who has proved it. A misuse error if the two ends protect frames in different
  // ways.
  sys::Task<Result<Guest>> welcome(sys::Admitted admitted, std::int64_t deadline_ns) const;

  std::vector<std::byte> challenge(std::uint64_t number) const override;
  std::size_t answer_bytes() const override { return comm::answer_bytes; }
  Status check(std::uint64_t number, std::span<const std::byte> answer) const override;
  std::vector<std::byte> refusal(std::uint64_t number) const override;
  std::size_t most_waiting() const override { return most_waiting_; }

 private:
  Doorkeeper(const WireProtection& wire, std::size_t most_waiting)
      : wire_(wire), most_waiting_(most_waiting) {}
  Key derived(std::string_view purpose, std::uint64_t number) const;

  const WireProtection wire_;
  const std::size_t most_waiting_;
  Key own_{};  // nobody else has it
  std::map<Purpose, Key> keys_;
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
    const WireProtection& wire, std::int64_t deadline_ns, Refusal& refusal);

}  // namespace unisono::comm
