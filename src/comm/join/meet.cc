#include "comm/join/meet.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/try.h"
#include "comm/join/join.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

// A value is "<rendezvous>,<secret>", where "-" stands for a secret that rank 0 was given, or
// "failed,<why>", or "absent,<rank>,<why>" of a rank that cannot join.
constexpr std::string_view own_secret = "-";
constexpr std::string_view failed = "failed,";
constexpr std::string_view absent_prefix = "absent,";
// PMI's launchers take values of 256 bytes and more.
constexpr std::size_t max_reason_bytes = 200;

bool is_plain(char c) { return c > ' ' && c < 0x7f && c != '%'; }

// Spaces and the like as "%20", which is one word for PMI.
std::string to_word(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    std::array<char, 2> digits{'0', '0'};
    const auto byte = static_cast<unsigned char>(c);
    std::to_chars(byte < 16 ? &digits[1] : digits.data(), digits.data() + digits.size(), byte, 16);
    out += '%';
    out.append(digits.data(), digits.size());
  }
  if (out.size() > max_reason_bytes) out.resize(max_reason_bytes);
  return out;
}

std::string from_word(std::string_view word) {
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    unsigned byte = 0;
    const bool is_coded = word[i] == '%' && i + 2 < word.size() &&
                          std::from_chars(word.data() + i + 1, word.data() + i + 3, byte, 16).ptr ==
                              word.data() + i + 3;
    out += is_coded ? static_cast<char>(byte) : word[i];
    if (is_coded) i += 2;
  }
  return out;
}

Result<Met> tell(Store& store, const Meeting& asked) {
  if (asked.failure) {
    UNISONO_TRY(store.set(asked.key, absent_rank(asked.rank, asked.failure->message)));
    return *asked.failure;
  }
  auto listener = RendezvousListener::open(asked.interface);
  if (!listener.ok()) {
    // The others learn why, or they would wait for nothing.
    UNISONO_TRY(store.set(asked.key, str(failed, to_word(listener.error().message))));
    return listener.take_error();
  }
  Met met{.listener = {}, .rendezvous = listener->rendezvous(), .secret = {}};
  if (!asked.has_secret) {
    UNISONO_ASSIGN(met.secret, sys::random_secret());
  }
  const std::string_view secret = asked.has_secret ? own_secret : std::string_view(met.secret);
  UNISONO_TRY(store.set(asked.key, str(met.rendezvous, ",", secret)));
  met.listener = std::move(*listener);
  return met;
}

Result<Met> hear(Store& store, const Meeting& asked) {
  UNISONO_TRY(store.wait(asked.key));
  UNISONO_ASSIGN(const std::string told, store.get(asked.key));
  if (const auto error = read_absent_rank(told)) return *error;
  if (told.starts_with(failed))
    return peer_error(0, "rank 0 could not listen for the other ranks: ",
                      from_word(std::string_view(told).substr(failed.size())));
  const std::size_t comma = std::min(told.rfind(','), told.size());
  const std::string secret = told.substr(std::min(comma + 1, told.size()));
  Met met{.listener = {}, .rendezvous = told.substr(0, comma), .secret = {}};
  const auto place = parse_rendezvous(met.rendezvous);
  if (!place.ok() || place->is_file || secret.empty())
    return peer_error(0, "the rendezvous that rank 0 published through ", store.name(),
                      " cannot be read; is rank 0 of another version of unisono?");
  if (asked.has_secret) return met;
  if (secret == own_secret)
    return environment_error(
        "rank 0 has a secret of its own (UNISONO_SECRET or UNISONO_SECRET_FILE) and rank ",
        asked.rank, " has none; set the same on every rank, or on none");
  met.secret = secret;
  return met;
}

}  // namespace

Result<Met> meet(Store& store, const Meeting& asked) {
  return asked.rank == 0 ? tell(store, asked) : hear(store, asked);
}

std::string absent_rank(int rank, std::string_view why) {
  return str(absent_prefix, rank, ",", to_word(why));
}

std::optional<Error> read_absent_rank(std::string_view value) {
  if (!value.starts_with(absent_prefix)) return std::nullopt;
  value.remove_prefix(absent_prefix.size());
  const std::size_t comma = std::min(value.find(','), value.size());
  int rank = -1;
  std::from_chars(value.data(), value.data() + comma, rank);
  return cannot_join(rank, from_word(value.substr(std::min(comma + 1, value.size()))));
}

std::string forgotten_meeting() {
  return str(failed, to_word("the job has started without this rank"));
}

}  // namespace unisono::comm
