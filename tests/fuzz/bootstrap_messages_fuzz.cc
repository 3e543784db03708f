// Every decoder of the control plane's messages, on arbitrary bytes. The first byte picks one. What
// decodes must encode to something that decodes to the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/wire.h"
#include "comm/bootstrap/inquiry.h"
#include "comm/bootstrap/messages.h"

namespace {

using namespace unisono;
using namespace unisono::comm;

void require(bool condition) {
  if (!condition) std::abort();
}

void try_frame_header(std::span<const std::byte> bytes) {
  const auto header = decode_frame_header(bytes, 1000);
  if (!header.ok()) return;
  require(header->payload_bytes <= max_small_payload_bytes);
  const std::vector<std::byte> payload(header->payload_bytes);
  const auto again = encode_frame(header->kind, header->key, payload);
  require(std::equal(bytes.begin(), bytes.end(), again.begin()));
}

void try_greeting(std::span<const std::byte> bytes) {
  for (const int ranks : {1, 3, 100'000}) {
    const auto greeting = decode_greeting(bytes, ranks);
    if (!greeting.ok()) continue;
    require(greeting->from.number() < ranks && greeting->to.number() < ranks);
    const auto again = encode(*greeting);
    require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
  }
}

void try_failure(std::span<const std::byte> bytes) {
  for (const int ranks : {1, 3, 100'000}) {
    const auto told = decode_failure(bytes, ranks);
    if (!told.ok()) continue;
    require(told->error.peer >= -1 && told->error.peer < ranks);
    require(told->error.message.size() <= max_error_text_bytes);
    const auto again = encode_failure(told->error);
    require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
  }
}

void try_entry(std::span<const std::byte> bytes) {
  const auto entry = decode_entry(bytes);
  if (!entry.ok()) return;
  const auto again = encode(*entry);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_table(std::span<const std::byte> bytes) {
  for (const std::size_t entries : {0, 1, 3, 1000}) {
    const auto table = decode_table(bytes, entries, 64);
    if (!table.ok()) continue;
    require(table->entries.size() == entries && table->next_address.size() <= max_address_bytes);
    for (const auto entry : table->entries) require(entry.size() <= 64);
  }
}

// Whatever arrives, only members of the group are named, and the verdict names one of them, or
// nobody where calls do not match.
void try_suspicions(std::span<const std::byte> bytes) {
  for (const int members : {2, 5, 100'000}) {
    const auto decoded = decode_suspicions(bytes, members);
    if (!decoded.ok()) continue;
    Suspicions all;
    all.add(*decoded);
    require(!all.empty() && all.all().size() <= max_suspicions);
    const Error verdict = all.verdict();
    const bool disagree = all.all().front().reason == Suspicion::Reason::mismatch;
    require(disagree ? verdict.peer == -1 : verdict.peer >= 0 && verdict.peer < members);
    const auto again = decode_suspicions(encode(all), members);
    require(again.ok() && !all.add(*again));
  }
}

void try_call_report(std::span<const std::byte> bytes) {
  const auto report = decode_call_report(bytes, 5);
  if (!report.ok()) return;
  require(report->waits_for >= -1 && report->waits_for < 5);
  const auto again = encode(*report);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_rendezvous_file(std::span<const std::byte> bytes) {
  // Nobody who lacks the secret writes a file that is believed.
  require(!decode_rendezvous_file(as_text(bytes), "a secret of the fuzzer").ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 10) {
    case 0:
      try_frame_header(bytes);
      break;
    case 1:
      (void)decode_enrolment(bytes).ok();
      break;
    case 2:
      (void)decode_introduction(bytes).ok();
      break;
    case 3:
      try_greeting(bytes);
      break;
    case 4:
      try_failure(bytes);
      break;
    case 5:
      try_entry(bytes);
      break;
    case 6:
      try_table(bytes);
      break;
    case 7:
      try_rendezvous_file(bytes);
      break;
    case 8:
      try_suspicions(bytes);
      break;
    default:
      try_call_report(bytes);
      break;
  }
  return 0;
}
