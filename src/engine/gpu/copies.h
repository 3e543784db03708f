// Plans and groups of messages by the copy engines: they take no SM.
//
// A call puts copies, waits and stores on its stream and returns; see copy_links.h. It can be
// captured into a CUDA graph like any other. One stream does all that waits or is waited for by
// others, in an order in which no rank waits for what another one puts behind its own wait.
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <span>

#include "engine/gpu/execution.h"
#include "plan/exchange.h"

namespace unisono::engine::gpu {

// Misuse for a plan that combines elements, or that one stream cannot run. `exchange` as in
// make_execution().
Result<std::unique_ptr<Execution>> make_copies(const plan::Header& header,
                                               const plan::RankProgram& program,
                                               const plan::Exchange* exchange,
                                               Resources& resources);

// As make_messages() (messages.h). The messages of a group go slot by slot in turn, so a message
// that fits no slot needs its peers to receive all of the group at the same time.
Result<std::unique_ptr<Execution>> make_copied_messages(std::span<const Message> messages, int rank,
                                                        Resources& resources);

}  // namespace unisono::engine::gpu
