// Every decoder of the control plane's messages, on arbitrary bytes. The first byte picks one. What
// decodes must encode to something that decodes to the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/wire.h"
#include "comm/blame/inquiry.h"
#include "comm/control/messages.h"
#include "comm/observe/survey.h"

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
    require(told->error.finder >= -1 && told->error.finder < ranks);
    require(told->error.call >= -1 && told->error.reason <= FailureReason::refused);
    require(told->error.message.size() <= max_error_text_bytes);
    require(told->settles_ms <= most_settling_ms);
    const auto again = encode_failure(told->error, told->settles_ms);
    require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
  }
}

void try_found(std::span<const std::byte> bytes) {
  const auto found = decode_found(bytes, 5);
  if (!found.ok()) return;
  require(found->address.size() <= max_address_bytes && found->record.size() <= max_record_bytes);
  const auto again = encode(*found);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_progress(std::span<const std::byte> bytes) {
  const auto progress = decode_progress(bytes, {2, 9});
  if (!progress.ok()) return;
  for (const auto* ranges : {&progress->missing, &progress->unready})
    for (const RankRange& range : *ranges) require(range.first >= 2 && range.end <= 9);
  const auto again = encode(*progress);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_census(std::span<const std::byte> bytes) {
  const auto census = decode_census(bytes, 5, bytes.size() % 2 == 0);
  if (!census.ok()) return;
  const Roster roster(*census);
  require(roster.ranks() == 5);
  require(Roster::decode(roster.encode(), 5).ok());
}

void try_roster(std::span<const std::byte> bytes) {
  const auto roster = Roster::decode(bytes, 100);
  if (!roster.ok()) return;
  for (int rank = 0; rank < 100; ++rank) {
    require(roster->node_of(rank) < roster->nodes() && roster->host_of(rank) < roster->hosts());
    require(roster->ranks_on_host(roster->host_of(rank)) <= 100);
  }
}

void try_table(std::span<const std::byte> bytes) {
  for (const std::size_t entries : {0, 1, 3, 1000}) {
    const auto table = decode_table(bytes, entries, 64);
    if (!table.ok()) continue;
    require(table->size() == entries);
    for (const auto entry : *table) require(entry.size() <= 64);
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
    const bool disagree = all.all().front().reason == FailureReason::mismatch;
    require(disagree ? verdict.peer == -1 : verdict.peer >= 0 && verdict.peer < members);
    const auto again = decode_suspicions(encode(all), members);
    require(again.ok() && !all.add(*again));
  }
}

void try_call_report(std::span<const std::byte> bytes) {
  const auto report = decode_call_report(bytes, 5);
  if (!report.ok()) return;
  require(report->waits.peer >= -1 && report->waits.peer < 5);
  require(!describe(report->waits).empty());
  const auto again = encode(*report);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_survey(std::span<const std::byte> bytes) {
  const auto survey = decode_survey(bytes, 9);
  if (!survey.ok()) return;
  require(survey->hosts.first >= 0 && survey->hosts.size() > 0 && survey->hosts.end <= 9);
  const auto again = encode(*survey);
  require(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void try_survey_answers(std::span<const std::byte> bytes) {
  const auto answers = decode_survey_answers(bytes, 5);
  if (!answers.ok()) return;
  require(answers->size() <= 5);
  for (const SurveyAnswer& one : *answers)
    require(one.rank.number() < 5 && one.reply.why.size() <= max_why_bytes);
  const auto again = encode(*answers);
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
  switch (data[0] % 15) {
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
      try_found(bytes);
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
    case 9:
      try_progress(bytes);
      break;
    case 10:
      try_census(bytes);
      break;
    case 11:
      try_roster(bytes);
      break;
    case 12:
      try_survey(bytes);
      break;
    case 13:
      try_survey_answers(bytes);
      break;
    default:
      try_call_report(bytes);
      break;
  }
  return 0;
}
