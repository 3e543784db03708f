// What a process answers of ranks on other hosts, whom it asks through the control plane
// (survey.h). docs/how-to/live.md has the request and the answer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/job/job.h"
#include "comm/join/bootstrap.h"
#include "comm/observe/survey.h"

namespace unisono::comm {

// This rank's part in surveys of its job, which it answers from now on. Null where all ranks are on
// this host.
std::shared_ptr<HostSurveys> join_surveys(const Job& job, const ControlGroup& group);

// Whether the request is "survey <number>", and a thread now answers it on the connection.
bool answer_survey(const std::shared_ptr<HostSurveys>& surveys, std::uint64_t job,
                   std::string_view request, int descriptor);

std::string survey_json(std::uint64_t job, std::span<const SurveyAnswer> answers);

}  // namespace unisono::comm
