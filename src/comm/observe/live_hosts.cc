#include "comm/observe/live_hosts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "comm/observe/live.h"
#include "sys/local_client.h"
#include "sys/thread.h"

namespace unisono::comm {
namespace {

constexpr std::string_view survey_head = "survey ";
// For the ranks of all hosts together, of the two seconds that the command may take.
constexpr std::uint32_t survey_ms = 1200;
constexpr std::chrono::milliseconds most_local_patience(1000);
constexpr std::chrono::seconds patience_with_reader(5);
// As the command reads them.
constexpr std::array<std::string_view, 4> names_of_silence{"unresponsive", "dead", "stopped",
                                                           "unresponsive"};

std::vector<SurveyAnswer> ask_here(std::uint64_t job, std::span<const Rank> ranks,
                                   const Survey& survey) {
  const std::string directory = live_directory();
  std::vector<std::string> paths;
  for (const Rank rank : ranks) paths.push_back(str(directory, "/", job, "-", rank.number()));
  const auto patience =
      std::min(most_local_patience, std::chrono::milliseconds(survey.patience_ms));
  const std::size_t most_bytes = max_survey_bytes / ranks.size();
  auto replies = sys::ask_local(paths, str("records ", survey.entries), patience, most_bytes);
  std::vector<SurveyAnswer> out;
  for (std::size_t i = 0; i < ranks.size(); ++i) out.push_back({ranks[i], std::move(replies[i])});
  return out;
}

}  // namespace

std::shared_ptr<HostSurveys> join_surveys(const Job& job, const ControlGroup& group) {
  if (job.roster().hosts() == 1) return nullptr;
  std::vector<Rank> here;
  for (int rank = 0; rank < job.size(); ++rank)
    if (job.is_on_this_host(rank)) here.push_back(*Rank::among(rank, job.size()));
  auto surveys = std::make_shared<HostSurveys>(
      group.world(), group.node(), job.roster(),
      [id = job.id(), here](const Survey& survey) { return ask_here(id, here, survey); });
  group.world()->post([surveys] { surveys->serve(); });
  return surveys;
}

bool answer_survey(const std::shared_ptr<HostSurveys>& surveys, std::uint64_t job,
                   std::string_view request, int descriptor) {
  const auto entries = entries_asked_for(request, survey_head);
  if (!entries || surveys == nullptr) return false;
  auto thread =
      sys::start_thread("asks other hosts' ranks", [surveys, job, descriptor, entries = *entries] {
        const auto answers = surveys->ask_others(static_cast<std::uint32_t>(entries), survey_ms);
        sys::answer_and_close(descriptor, survey_json(job, answers), patience_with_reader);
      });
  if (!thread.ok()) {
    log(LogLevel::warn, thread.error().message);
    return false;
  }
  thread->detach();
  return true;
}

std::string survey_json(std::uint64_t job, std::span<const SurveyAnswer> answers) {
  std::string out;
  json::Writer writer(out);
  writer.begin_array();
  for (const SurveyAnswer& one : answers) {
    const sys::LocalReply& reply = one.reply;
    writer.begin_object(json::Writer::Layout::one_line);
    writer.key("job").value(str(job));
    writer.key("rank").value(one.rank.number());
    writer.key("contents").value(reply.contents);
    writer.key("silence").value(reply.why);
    writer.key("kind").value(names_of_silence[static_cast<std::size_t>(reply.silence)]);
    writer.key("process").value(reply.process);
    writer.end_object();
  }
  writer.end_array();
  return out;
}

}  // namespace unisono::comm
