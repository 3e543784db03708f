// The control plane's messages as bytes. Everything that arrives is decoded here, with a limit on
// every length; the decoders are fuzzed (tests/fuzz/bootstrap_messages_fuzz.cc).
//
// On a connection, after the handshake, come frames: a header of fixed length, then a payload. The
// first frame says what the connection is for: enrol (to join the job) or greet (a link between two
// ranks).
//
// Ranks are compared with the number of ranks where they are decoded: what is decoded may be used.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/rank.h"
#include "comm/control/tree.h"

namespace unisono::comm {

enum class FrameKind : std::uint8_t {
  bye = 0,         // the sender closes the connection
  enrol = 1,       // to a rank above in the tree: Enrolment
  introduce = 2,   // from the parent: Introduction; the connection is a link from now on
  redirect = 3,    // from a rank above: where to go on; empty: come again later
  progress = 4,    // from a child: Progress, while its subtree is not complete
  greet = 5,       // rank to rank: Greeting; a link begins
  message = 6,     // of a communicator's exchange
  failure = 7,     // encode_failure; of the communicator, or of the job while it is joined
  suspicion = 8,   // of the communicator; inquiry.h has the payloads from here on
  ask = 9,         // what does your rank do in this communicator? No payload
  answer = 10,     // CallReport
  dump = 11,       // a rank has written its record, and asks for everybody's
  look_up = 12,    // LookUp; on its way through the tree
  found = 13,      // Found; on its way back
  survey = 14,     // on a connection of its own: what do the ranks on your host say? survey.h
  surveyed = 15,   // its answers
  surveying = 16,  // before them, at once: the sender asks, so that nobody else need
};

// What a message is about: a round of an exchange; a communicator's exchanges count from 0 upwards.
struct MessageKey {
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t round = 0;
  auto operator<=>(const MessageKey&) const = default;
};

struct FrameHeader {
  FrameKind kind = FrameKind::message;
  MessageKey key;
  std::uint32_t payload_bytes = 0;
};
// Magic 4, kind 1, communicator 8, epoch 4, sequence 8, round 4, payload 4.
inline constexpr std::size_t frame_header_bytes = 33;
// The limit of every frame but messages and the answers to surveys: an address of at most 300
// characters (a host's name has 255) and a record, or an error's text, and some numbers.
inline constexpr std::size_t max_small_payload_bytes = 4096;
inline constexpr std::size_t max_record_bytes = 3072;
inline constexpr std::size_t max_address_bytes = 300;
inline constexpr std::size_t max_error_text_bytes = 3072;

std::vector<std::byte> encode_frame(FrameKind kind, const MessageKey& key,
                                    std::span<const std::byte> payload);
// `bytes` has frame_header_bytes. A header of another program, an unknown kind or a payload
// longer than its kind may have (messages, surveyed: `max_message_bytes`) is an error.
Result<FrameHeader> decode_frame_header(std::span<const std::byte> bytes,
                                        std::size_t max_message_bytes);

struct Enrolment {
  std::uint32_t rank = 0;        // not checked: who serves it knows the number of ranks, and tells
  std::uint32_t world_size = 0;  // all ranks what is wrong (Reception::admit)
  std::string address;           // where this rank listens
};
std::vector<std::byte> encode(const Enrolment& enrolment);
Result<Enrolment> decode_enrolment(std::span<const std::byte> payload);

struct Introduction {
  std::uint64_t job = 0;  // the job's random identity, which is no secret
  Key wrapped_key{};      // the job's key, as Channel::wrap hides it
};
std::vector<std::byte> encode(const Introduction& introduction);
Result<Introduction> decode_introduction(std::span<const std::byte> payload);

struct Greeting {
  std::uint64_t job = 0;
  Rank from;
  Rank to;
};
std::vector<std::byte> encode(const Greeting& greeting);
Result<Greeting> decode_greeting(std::span<const std::byte> payload, int ranks);

// For so long members may compare what they suspect.
inline constexpr std::uint32_t most_settling_ms = 2000;
// The sender's error, its text cut to the limit. It blames one of `ranks` ranks, or none.
struct ToldFailure {
  Error error;
  std::uint32_t settles_ms = 0;  // until then members may find that another rank is to blame
};
std::vector<std::byte> encode_failure(const Error& error, std::uint32_t settles_ms = 0);
Result<ToldFailure> decode_failure(std::span<const std::byte> payload, int ranks);

// Where to go on; not checked.
std::vector<std::byte> encode_redirect(std::string_view address);
Result<std::string> decode_redirect(std::span<const std::byte> payload);

// Which ranks of a subtree have not come, and which have but are not ready; ascending.
struct Progress {
  std::vector<RankRange> missing;
  std::vector<RankRange> unready;
};
// Ranges beyond what fits are left out.
std::vector<std::byte> encode(const Progress& progress);
// All ranges are within the subtree.
Result<Progress> decode_progress(std::span<const std::byte> payload, const RankRange& subtree);

// Asks what a rank has published, or only its address, which its parent knows, too.
struct LookUp {
  Rank target;
  Rank asker;
  bool is_address_only = false;
};
std::vector<std::byte> encode(const LookUp& look_up);
Result<LookUp> decode_look_up(std::span<const std::byte> payload, int ranks);

struct Found {
  LookUp asked;
  std::string address;
  std::span<const std::byte> record;
};
std::vector<std::byte> encode(const Found& found);
Result<Found> decode_found(std::span<const std::byte> payload, int ranks);

// A run of entries in rank order, as it goes from rank to rank: their number, each as a block.
std::vector<std::byte> encode_table(std::span<const std::vector<std::byte>> entries);
// Exactly `expected_entries` of at most `max_entry_bytes` each.
Result<std::vector<std::span<const std::byte>>> decode_table(std::span<const std::byte> payload,
                                                             std::size_t expected_entries,
                                                             std::size_t max_entry_bytes);
std::size_t max_table_bytes(std::size_t entries, std::size_t max_entry_bytes);

// The file of a file:// rendezvous: rank 0's address under an authentication code of the job's
// secret. Not secret itself. An old job's file has another job's code, or leads to nobody.
std::string encode_rendezvous_file(const std::string& address, std::string_view secret);
Result<std::string> decode_rendezvous_file(std::string_view content, std::string_view secret);
inline constexpr std::size_t max_rendezvous_file_bytes = 1024;

}  // namespace unisono::comm
