// Records of all communicators of this process as JSON: on request, by signal, when a communicator
// fails, and to whoever asks on a live socket (live.h), which one thread answers. With
// UNISONO_DUMP_DIRECTORY it also listens for the failures of groups whose ranks here make no call,
// so that every rank that lives writes what it knows.
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <string>
#include <string_view>

namespace unisono::comm {

// Includes a communicator in what a signal dumps, in what live sockets answer and in what the
// thread listens to, until it is destroyed; that waits for whoever looks at the communicator now.
class Watch {
 public:
  virtual ~Watch() = default;
};
// Installs the handler of UNISONO_DUMP_SIGNAL and starts the thread the first time.
std::unique_ptr<Watch> watch_for_dumps(Communicator::Core& core);
// Whether that thread listens for failures.
bool is_watched();

// `cause` as trace::to_json says.
std::string record_json(const Communicator::Core& core, std::string_view cause);

// Writes <UNISONO_DUMP_DIRECTORY>/unisono-<communicator>-<rank>.json whole or not at all; does
// nothing without that setting. At most 64 files a process, of the newest 16,384 collectives and as
// many messages. What goes wrong is logged once: the caller has worse to tell.
void dump_to_directory(const Communicator::Core& core, std::string_view cause);
// That of a communicator that has failed and, because the reason may lie in another group, those of
// all others of this process. Any thread; it may hold the progress lock of the failed one.
void dump_process_to_directory(const Communicator::Core& failed);

}  // namespace unisono::comm
