#include "comm/control/messages.h"

#include <algorithm>

#include "base/error.h"
#include "base/hmac.h"
#include "base/str.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

constexpr std::uint32_t frame_magic = 0x31534e55;  // "UNS1"
// Of a Progress: two lists of them fit into one small frame.
constexpr std::size_t max_ranges = 200;
constexpr std::string_view file_magic = "unisono rendezvous 1";

Error malformed(std::string_view what) {
  return environment_error("received a malformed ", what, " message");
}

bool is_rank_or_none(int rank, int ranks) { return rank == -1 || Rank::among(rank, ranks); }

std::string file_code(std::string_view address, std::string_view secret) {
  const Sha256Digest code =
      hmac_sha256(as_bytes_of(secret), {as_bytes_of(file_magic), as_bytes_of(address)});
  return hex(code);
}

}  // namespace

std::vector<std::byte> encode_frame(FrameKind kind, const MessageKey& key,
                                    std::span<const std::byte> payload) {
  WireWriter out;
  out.number(frame_magic);
  out.number(static_cast<std::uint8_t>(kind));
  out.number(key.communicator);
  out.number(key.epoch);
  out.number(key.sequence);
  out.number(key.round);
  out.block(payload);
  return out.take();
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte> bytes,
                                        std::size_t max_message_bytes) {
  WireReader in(bytes);
  const bool is_ours = in.number<std::uint32_t>() == frame_magic;
  const auto kind = in.number<std::uint8_t>();
  FrameHeader out;
  out.key.communicator = in.number<std::uint64_t>();
  out.key.epoch = in.number<std::uint32_t>();
  out.key.sequence = in.number<std::uint64_t>();
  out.key.round = in.number<std::uint32_t>();
  out.payload_bytes = in.number<std::uint32_t>();
  if (!in.done() || !is_ours) return malformed("frame");
  if (kind > static_cast<std::uint8_t>(FrameKind::surveying))
    return environment_error("received a frame of the unknown kind ", kind);
  out.kind = static_cast<FrameKind>(kind);
  const bool is_large = out.kind == FrameKind::message || out.kind == FrameKind::surveyed;
  const std::size_t limit = is_large ? max_message_bytes : max_small_payload_bytes;
  if (out.payload_bytes > limit)
    return environment_error("received a frame of ", out.payload_bytes,
                             " bytes; frames of its kind have at most ", limit);
  return out;
}

std::vector<std::byte> encode(const Enrolment& enrolment) {
  WireWriter out;
  out.number(enrolment.rank);
  out.number(enrolment.world_size);
  out.text(enrolment.address);
  return out.take();
}

Result<Enrolment> decode_enrolment(std::span<const std::byte> payload) {
  WireReader in(payload);
  Enrolment out;
  out.rank = in.number<std::uint32_t>();
  out.world_size = in.number<std::uint32_t>();
  out.address = in.text(max_address_bytes);
  if (!in.done()) return malformed("enrolment");
  return out;
}

std::vector<std::byte> encode(const Introduction& introduction) {
  WireWriter out;
  out.number(introduction.job);
  out.raw(introduction.wrapped_key);
  return out.take();
}

Result<Introduction> decode_introduction(std::span<const std::byte> payload) {
  WireReader in(payload);
  Introduction out;
  out.job = in.number<std::uint64_t>();
  const auto key = in.raw(out.wrapped_key.size());
  std::ranges::copy(key, out.wrapped_key.begin());
  if (!in.done()) return malformed("introduction");
  return out;
}

std::vector<std::byte> encode(const Greeting& greeting) {
  WireWriter out;
  out.number(greeting.job);
  out.number(static_cast<std::uint32_t>(greeting.from.number()));
  out.number(static_cast<std::uint32_t>(greeting.to.number()));
  return out.take();
}

Result<Greeting> decode_greeting(std::span<const std::byte> payload, int ranks) {
  WireReader in(payload);
  const auto job = in.number<std::uint64_t>();
  const auto from = Rank::among(in.number<std::uint32_t>(), ranks);
  const auto to = Rank::among(in.number<std::uint32_t>(), ranks);
  if (!in.done() || !from || !to) return malformed("greeting");
  return Greeting{job, *from, *to};
}

std::vector<std::byte> encode_failure(const Error& error, std::uint32_t settles_ms) {
  WireWriter out;
  out.number(static_cast<std::uint8_t>(error.kind));
  out.number(static_cast<std::uint8_t>(error.timed_out));
  out.number(static_cast<std::uint8_t>(error.aborted));
  out.number(static_cast<std::uint8_t>(error.reason));
  out.number(static_cast<std::uint32_t>(error.peer));
  out.number(static_cast<std::uint32_t>(error.finder));
  out.number(static_cast<std::uint64_t>(error.call));
  out.number(settles_ms);
  out.text(std::string_view(error.message).substr(0, max_error_text_bytes));
  return out.take();
}

Result<ToldFailure> decode_failure(std::span<const std::byte> payload, int ranks) {
  WireReader in(payload);
  const auto kind = in.number<std::uint8_t>();
  const auto timed_out = in.number<std::uint8_t>();
  const auto aborted = in.number<std::uint8_t>();
  const auto reason = in.number<std::uint8_t>();
  const auto peer = static_cast<std::int32_t>(in.number<std::uint32_t>());
  const auto finder = static_cast<std::int32_t>(in.number<std::uint32_t>());
  const auto call = static_cast<std::int64_t>(in.number<std::uint64_t>());
  const auto settles_ms = in.number<std::uint32_t>();
  const auto text = in.text(max_error_text_bytes);
  if (!in.done() || kind > static_cast<std::uint8_t>(ErrorKind::peer) || timed_out > 1 ||
      aborted > 1 || settles_ms > most_settling_ms || reason >= failure_reason_count || call < -1 ||
      !is_rank_or_none(peer, ranks) || !is_rank_or_none(finder, ranks))
    return malformed("failure");
  ToldFailure out;
  out.settles_ms = settles_ms;
  out.error.kind = static_cast<ErrorKind>(kind);
  out.error.timed_out = timed_out == 1;
  out.error.aborted = aborted == 1;
  out.error.peer = peer;
  out.error.reason = static_cast<FailureReason>(reason);
  out.error.finder = finder;
  out.error.call = call;
  out.error.message = text;
  return out;
}

std::vector<std::byte> encode_redirect(std::string_view address) {
  WireWriter out;
  out.text(address);
  return out.take();
}

Result<std::string> decode_redirect(std::span<const std::byte> payload) {
  WireReader in(payload);
  std::string address(in.text(max_address_bytes));
  if (!in.done()) return malformed("redirect");
  return address;
}

std::vector<std::byte> encode(const Progress& progress) {
  WireWriter out;
  for (const auto* ranges : {&progress.missing, &progress.unready}) {
    const std::size_t count = std::min(ranges->size(), max_ranges);
    out.number(static_cast<std::uint32_t>(count));
    for (const RankRange& range : std::span(*ranges).first(count)) {
      out.number(static_cast<std::uint32_t>(range.first));
      out.number(static_cast<std::uint32_t>(range.end));
    }
  }
  return out.take();
}

Result<Progress> decode_progress(std::span<const std::byte> payload, const RankRange& subtree) {
  WireReader in(payload);
  Progress out;
  for (auto* ranges : {&out.missing, &out.unready}) {
    const auto count = in.number<std::uint32_t>();
    std::int64_t last = subtree.first;
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      const std::int64_t first = in.number<std::uint32_t>();
      const std::int64_t end = in.number<std::uint32_t>();
      if (i >= max_ranges || first < last || end <= first || end > subtree.end)
        return malformed("progress");
      last = end;
      ranges->push_back({static_cast<int>(first), static_cast<int>(end)});
    }
  }
  if (!in.done()) return malformed("progress");
  return out;
}

std::vector<std::byte> encode(const LookUp& look_up) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(look_up.target.number()));
  out.number(static_cast<std::uint32_t>(look_up.asker.number()));
  out.number(static_cast<std::uint8_t>(look_up.is_address_only));
  return out.take();
}

Result<LookUp> decode_look_up(std::span<const std::byte> payload, int ranks) {
  WireReader in(payload);
  const auto target = Rank::among(in.number<std::uint32_t>(), ranks);
  const auto asker = Rank::among(in.number<std::uint32_t>(), ranks);
  const auto is_address_only = in.number<std::uint8_t>();
  if (!in.done() || !target || !asker || is_address_only > 1) return malformed("look-up");
  return LookUp{*target, *asker, is_address_only == 1};
}

std::vector<std::byte> encode(const Found& found) {
  WireWriter out;
  out.block(encode(found.asked));
  out.text(found.address);
  out.block(found.record);
  return out.take();
}

Result<Found> decode_found(std::span<const std::byte> payload, int ranks) {
  WireReader in(payload);
  const auto asked = decode_look_up(in.block(max_small_payload_bytes), ranks);
  if (!asked.ok()) return asked.error();
  Found out{*asked, std::string(in.text(max_address_bytes)), in.block(max_record_bytes)};
  if (!in.done()) return malformed("found");
  return out;
}

std::vector<std::byte> encode_table(std::span<const std::vector<std::byte>> entries) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(entries.size()));
  for (const auto& entry : entries) out.block(entry);
  return out.take();
}

Result<std::vector<std::span<const std::byte>>> decode_table(std::span<const std::byte> payload,
                                                             std::size_t expected_entries,
                                                             std::size_t max_entry_bytes) {
  WireReader in(payload);
  const auto count = in.number<std::uint32_t>();
  if (!in.ok() || count != expected_entries)
    return environment_error("received a table of ", count, " entries; ", expected_entries,
                             " were expected");
  std::vector<std::span<const std::byte>> out;
  out.reserve(expected_entries);
  for (std::size_t i = 0; i < expected_entries && in.ok(); ++i)
    out.push_back(in.block(max_entry_bytes));
  if (!in.done()) return malformed("table");
  return out;
}

std::size_t max_table_bytes(std::size_t entries, std::size_t max_entry_bytes) {
  return 4 + entries * (4 + max_entry_bytes);
}

std::string encode_rendezvous_file(const std::string& address, std::string_view secret) {
  return str(file_magic, "\n", address, "\n", file_code(address, secret), "\n");
}

Result<std::string> decode_rendezvous_file(std::string_view content, std::string_view secret) {
  const auto take_line = [&] {
    const auto end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    return line;
  };
  const std::string_view magic = take_line();
  const std::string_view address = take_line();
  const std::string_view code = take_line();
  if (magic != file_magic || address.size() > max_address_bytes || !content.empty())
    return environment_error("the file is not a rendezvous file");
  if (!equal_in_constant_time(as_bytes_of(code), as_bytes_of(file_code(address, secret))))
    return environment_error("the file was written by a job with another secret");
  return std::string(address);
}

}  // namespace unisono::comm
