// Calls that have ended, as columns of JSON: a tenth of the text that objects take, and quick to
// read for 16 million of them.
#pragma once

#include <span>

#include "base/json.h"
#include "trace/record.h"

namespace unisono::trace {

// The newest calls are written in words, however they ended.
inline constexpr std::size_t newest_in_words = 64;

// Ended, with nothing that only an object can say.
bool can_be_packed(const Entry& entry);

// An object with the members of docs/reference/record.md, "Packed entries". All of the entries are
// collectives, or all are messages.
void write_packed(json::Writer& writer, std::span<const Entry> entries);

}  // namespace unisono::trace
