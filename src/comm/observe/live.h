// What a process answers on its live sockets, of which it has one for each job and rank:
// docs/how-to/live.md.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/job/job.h"
#include "sys/local_server.h"
#include "trace/record.h"

namespace unisono::comm {

// user_directory() + "/live".
std::string live_directory();

// The lowest rank of the job on this host first removes sockets of dead processes.
Result<std::shared_ptr<sys::LocalSocket>> open_live_socket(const Job& job);

// How many entries of each kind "records <number>" asks for; nothing for any other request. As many
// as a file of a record has are the most.
std::optional<std::size_t> entries_asked_for(std::string_view request,
                                             std::string_view head = "records ");

// Calls that are over, but for the newest ones, are left out.
void keep_open_and_newest(std::vector<trace::Entry>& entries, std::size_t newest);

// The answer: what it says of the job, and the records, which are JSON.
std::string live_head(const Job& job);
std::string live_json(std::string_view head, std::span<const std::string> records);

}  // namespace unisono::comm
