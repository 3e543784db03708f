// Files that others may have prepared: read up to a bound, written whole or not at all.
//
// Neither function waits for another process, and what stands at a path never decides what happens
// outside of it: a FIFO, a device or a folder is refused, and a planted link is not written
// through.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <unisono/result.h>

namespace unisono {

enum class Readers : bool { anyone, owner };
enum class Durable : bool { no, yes };

// The bytes of a regular file; an error where it has more than `most_bytes`, of which at most one
// more is read. With Readers::owner, it must belong to this user and be closed to all others.
Result<std::string> read_bounded(const std::string& path, std::size_t most_bytes,
                                 Readers readers = Readers::anyone);

// Writes a new file of mode 0600 under a random name in the same folder, which then takes the place
// of `path`, a link there included. An error leaves what was there. It says how much space was
// missing where that was the reason. A folder that is another user's link is refused, but for
// root's. Durable: the bytes have reached the disk first.
Status write_whole(const std::string& path, std::string_view content,
                   Durable durable = Durable::yes);

// All of it, whatever interrupts; 0 or the error's number.
int write_all(int descriptor, std::string_view content);
// "<what>: No space left on device; 12 bytes more are needed", of a file that should have `bytes`.
Error write_error(std::string_view what, int descriptor, std::size_t bytes, int error_number);

}  // namespace unisono
