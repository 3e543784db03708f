#include "transport/ofi/message.h"

#include <algorithm>

#include "base/hmac.h"
#include "base/wire.h"

namespace unisono::transport::ofi {
namespace {

constexpr std::uint32_t magic = 0x756f6605;  // with this version
constexpr std::size_t proof_bytes = sizeof(Sha256Digest);

bool is_of_meeting(MessageType type) {
  return type == MessageType::ask || type == MessageType::answer || type == MessageType::join;
}
bool has_proof(MessageType type) {
  return type == MessageType::answer || type == MessageType::join;
}

void write(WireWriter& writer, const Meeting& meeting) {
  writer.number(meeting.key.communicator);
  writer.number(meeting.key.epoch);
  writer.number(meeting.key.channel);
  writer.number(meeting.from);
  writer.number(meeting.to);
  writer.raw(meeting.from_nonce);
  writer.raw(meeting.to_nonce);
}

void write(WireWriter& writer, const Facts& facts) {
  writer.number(std::uint64_t{facts.geometry.region_bytes});
  writer.number(static_cast<std::uint32_t>(facts.geometry.signals));
  writer.number(facts.geometry.layout);
  writer.number(facts.number);
  writer.number(facts.ticket);
  writer.number(facts.memory_key);
  writer.number(facts.memory_address);
  writer.number(facts.host);
  writer.number(static_cast<std::uint32_t>(facts.process.pid));
  writer.number(facts.process.start_time);
  writer.number(facts.process.pid_namespace);
  writer.number(static_cast<std::uint8_t>(facts.reads_data));
}

void write(WireWriter& writer, const Note& note) {
  writer.number(note.number);
  writer.number(note.ticket);
  writer.number(note.arrived);
  writer.number(note.sequence);
  writer.number(note.index);
  writer.number(note.value);
  writer.number(note.offset);
  writer.number(note.bytes);
  writer.number(note.to_key);
  writer.number(note.to_address);
}

void read(WireReader& reader, Nonce& nonce) {
  std::ranges::copy(reader.raw(nonce.size()), nonce.begin());
}

void read(WireReader& reader, Meeting& meeting) {
  meeting.key.communicator = reader.number<std::uint64_t>();
  meeting.key.epoch = reader.number<std::uint32_t>();
  meeting.key.channel = reader.number<std::uint32_t>();
  meeting.from = reader.number<std::uint32_t>();
  meeting.to = reader.number<std::uint32_t>();
  read(reader, meeting.from_nonce);
  read(reader, meeting.to_nonce);
}

void read(WireReader& reader, Facts& facts) {
  facts.geometry.region_bytes = reader.number<std::uint64_t>();
  facts.geometry.signals = static_cast<int>(reader.number<std::uint32_t>());
  facts.geometry.layout = reader.number<std::uint64_t>();
  facts.number = reader.number<std::uint32_t>();
  facts.ticket = reader.number<std::uint64_t>();
  facts.memory_key = reader.number<std::uint64_t>();
  facts.memory_address = reader.number<std::uint64_t>();
  facts.host = reader.number<std::uint64_t>();
  facts.process.pid = static_cast<std::int32_t>(reader.number<std::uint32_t>());
  facts.process.start_time = reader.number<std::uint64_t>();
  facts.process.pid_namespace = reader.number<std::uint64_t>();
  facts.reads_data = reader.number<std::uint8_t>() != 0;
}

void read(WireReader& reader, Note& note) {
  note.number = reader.number<std::uint32_t>();
  note.ticket = reader.number<std::uint64_t>();
  note.arrived = reader.number<std::uint64_t>();
  note.sequence = reader.number<std::uint64_t>();
  note.index = reader.number<std::uint32_t>();
  note.value = reader.number<std::uint64_t>();
  note.offset = reader.number<std::uint64_t>();
  note.bytes = reader.number<std::uint64_t>();
  note.to_key = reader.number<std::uint64_t>();
  note.to_address = reader.number<std::uint64_t>();
}

}  // namespace

std::vector<std::byte> encode(const Message& message, const Key& key) {
  WireWriter writer;
  writer.number(magic);
  writer.number(static_cast<std::uint8_t>(message.type));
  if (is_of_meeting(message.type))
    write(writer, message.meeting);
  else
    write(writer, message.note);
  if (message.type == MessageType::join) write(writer, message.facts);
  if (has_proof(message.type)) writer.raw(hmac_sha256(key, {writer.bytes()}));
  return writer.take();
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto version = reader.number<std::uint32_t>();
  const auto type = reader.number<std::uint8_t>();
  if (version != magic || type < static_cast<std::uint8_t>(MessageType::ask) ||
      type > static_cast<std::uint8_t>(MessageType::arrived))
    return std::nullopt;
  Message out{.type = static_cast<MessageType>(type), .meeting = {}, .facts = {}, .note = {}};
  if (is_of_meeting(out.type))
    read(reader, out.meeting);
  else
    read(reader, out.note);
  if (out.type == MessageType::join) read(reader, out.facts);
  if (has_proof(out.type)) reader.raw(proof_bytes);
  if (!reader.done()) return std::nullopt;
  return out;
}

bool is_proved(std::span<const std::byte> bytes, const Key& key) {
  if (bytes.size() < proof_bytes) return false;
  const auto said = bytes.first(bytes.size() - proof_bytes);
  return equal_in_constant_time(bytes.last(proof_bytes), hmac_sha256(key, {said}));
}

}  // namespace unisono::transport::ofi
