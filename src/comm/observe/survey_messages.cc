// What a survey's two ends tell each other, as bytes; fuzzed with the other messages.
#include "base/error.h"
#include "base/wire.h"
#include "comm/observe/survey.h"

namespace unisono::comm {
namespace {

// Rank 4, silence 1, process 4, two lengths of 4.
constexpr std::size_t answer_head_bytes = 17;

Error malformed_survey(std::string_view what) {
  return environment_error("received a malformed ", what);
}

}  // namespace

std::vector<std::byte> encode(const Survey& survey) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(survey.hosts.first));
  out.number(static_cast<std::uint32_t>(survey.hosts.end));
  out.number(survey.entries);
  out.number(survey.patience_ms);
  return out.take();
}

Result<Survey> decode_survey(std::span<const std::byte> payload, int hosts) {
  WireReader in(payload);
  const auto first = in.number<std::uint32_t>();
  const auto end = in.number<std::uint32_t>();
  Survey out;
  out.entries = in.number<std::uint32_t>();
  out.patience_ms = in.number<std::uint32_t>();
  if (!in.done() || first >= end || end > static_cast<std::uint32_t>(hosts) ||
      out.patience_ms > most_survey_patience_ms)
    return malformed_survey("survey");
  out.hosts = {static_cast<int>(first), static_cast<int>(end)};
  return out;
}

std::vector<std::byte> encode(std::span<const SurveyAnswer> answers, std::size_t most_bytes) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(answers.size()));
  // What every answer may take without its contents is kept for those that follow.
  std::size_t left =
      most_bytes - std::min(most_bytes, sizeof(std::uint32_t) +
                                            answers.size() * (answer_head_bytes + max_why_bytes));
  for (const SurveyAnswer& one : answers) {
    const bool fits = one.reply.contents.size() <= left;
    const sys::Silence silence = fits ? one.reply.silence : sys::Silence::unresponsive;
    out.number(static_cast<std::uint32_t>(one.rank.number()));
    out.number(static_cast<std::uint8_t>(silence));
    out.number(static_cast<std::uint32_t>(one.reply.process));
    out.text(fits ? std::string_view(one.reply.why).substr(0, max_why_bytes)
                  : std::string_view("answers, but all answers together are too long"));
    out.text(fits ? std::string_view(one.reply.contents) : std::string_view());
    if (fits) left -= one.reply.contents.size();
  }
  return out.take();
}

Result<std::vector<SurveyAnswer>> decode_survey_answers(std::span<const std::byte> payload,
                                                        int ranks) {
  WireReader in(payload);
  std::vector<SurveyAnswer> out;
  const auto count = in.number<std::uint32_t>();
  if (count > static_cast<std::uint32_t>(ranks)) return malformed_survey("answer to a survey");
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto rank = Rank::among(in.number<std::uint32_t>(), ranks);
    const auto silence = in.number<std::uint8_t>();
    const auto process = in.number<std::uint32_t>();
    const std::string_view why = in.text(max_why_bytes);
    const std::string_view contents = in.text(payload.size());
    const bool is_ascending = out.empty() || (rank && out.back().rank.number() < rank->number());
    if (!in.ok() || !rank || !is_ascending || process > INT32_MAX ||
        silence > static_cast<std::uint8_t>(sys::Silence::unresponsive) ||
        contents.empty() == (silence == 0))
      return malformed_survey("answer to a survey");
    out.push_back({*rank,
                   {.contents = std::string(contents),
                    .silence = static_cast<sys::Silence>(silence),
                    .why = std::string(why),
                    .process = static_cast<int>(process)}});
  }
  if (!in.done()) return malformed_survey("answer to a survey");
  return out;
}

}  // namespace unisono::comm
