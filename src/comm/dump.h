// Writes the records of all communicators of this process as JSON: on request of the program or of
// a peer, on a signal, when a communicator fails, when the process exits during calls, and to
// clients of a live socket (live.h). One thread answers. It also listens for failures in groups
// that this process makes no call in, so that every living rank writes its record.
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <string>
#include <string_view>

namespace unisono::comm {

// Includes a communicator in what a signal dumps, in what live sockets answer and in what the
// thread listens to, until it is destroyed; that waits while the thread looks at it.
class Watch {
 public:
  virtual ~Watch() = default;
};
// The first communicator of the process that has UNISONO_DUMP_DIRECTORY or UNISONO_LIVE starts the
// thread, and the first that has UNISONO_DUMP_SIGNAL installs the handler.
std::unique_ptr<Watch> watch_for_dumps(Communicator::Core& core);
// Whether it writes files when a group fails whose rank here makes no call.
bool is_watched(const Communicator::Core& core);

// `cause` as trace::to_json says.
std::string record_json(const Communicator::Core& core, std::string_view cause);

// Writes <UNISONO_DUMP_DIRECTORY>/unisono-<communicator>-<rank>.json whole or not at all. At most
// 64 files a process, of the newest 16,384 collectives and as many messages.
Status write_dump(const Communicator::Core& core, std::string_view cause);
// The same, but nothing without that setting. What goes wrong is logged once: the caller has worse
// to tell.
void dump_to_directory(const Communicator::Core& core, std::string_view cause);
// That of a communicator that has failed and, because the reason may lie in another group, those of
// all others of this process, whose peers are asked for theirs. Any thread; it may hold the
// progress lock of the failed one.
void dump_process_to_directory(const Communicator::Core& failed);
// And asks the peers for theirs.
void dump_and_ask(const Communicator::Core& core, std::string_view cause);

}  // namespace unisono::comm
