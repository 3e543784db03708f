// Records as files of UNISONO_DUMP_DIRECTORY, bounded in number and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/record.h"

namespace unisono::trace {

inline constexpr int most_files = 64;  // of one process
// Collectives, and as many messages and directions of connections.
inline constexpr std::size_t most_entries = 16'384;

// <directory>/unisono-<communicator>-<rank>.json
std::string file_of(std::string_view directory, std::uint64_t communicator, int rank);
// Leaves so many, those that have carried most.
void keep_busiest(std::vector<Connection>& connections, std::size_t most);
// Leaves most_entries: the newest calls, and the busiest connections.
void keep_what_a_file_holds(Record& record);

}  // namespace unisono::trace
