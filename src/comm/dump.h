// Records of all communicators of this process as JSON: on request, on failure, by signal.
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <string>

namespace unisono::comm {

// Includes the communicator in what a signal dumps, for as long as it lives; installs the handler
// of UNISONO_DUMP_SIGNAL the first time.
void register_for_dumps(const std::shared_ptr<Communicator::Core>& core);

std::string record_json(const Communicator::Core& core);

// Writes <UNISONO_DUMP_DIRECTORY>/unisono-<communicator>-<rank>.json, or does nothing without that
// setting. Returns the path; what goes wrong is logged, for the caller has worse to tell.
std::string dump_to_directory(const Communicator::Core& core);

}  // namespace unisono::comm
