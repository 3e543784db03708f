#include "verify/steps.h"

#include "base/str.h"
#include "plan/walk.h"

namespace unisono::verify {
namespace {

std::string location_text(const plan::Location& location, int count,
                          const plan::LoopValues& loops) {
  const std::int64_t first = location.index.at(loops);
  std::string text = str(" ", name(location.buffer), "[", first);
  if (count > 1) append(text, str("..", first + count - 1));
  append(text, ']');
  return text;
}

}  // namespace

std::string step_text(const plan::ThreadBlock& thread_block, const plan::Step& step,
                      const plan::LoopValues& loops) {
  std::string text(name(step.operation));
  if (plan::reads_source(step.operation))
    append(text, location_text(step.source, step.count, loops));
  if (plan::reads_source(step.operation) && plan::writes_destination(step.operation))
    append(text, " ->");
  if (plan::writes_destination(step.operation))
    append(text, location_text(step.destination, step.count, loops));
  if (plan::receives(step.operation)) append(text, str(", from rank ", thread_block.recv_peer));
  if (plan::sends(step.operation) || step.operation == plan::Operation::put)
    append(text, str(", to rank ", thread_block.send_peer));
  if (!step.peers.empty()) append(text, str(", of ranks ", join(step.peers)));
  return text;
}

std::string step_text(const plan::ThreadBlock& thread_block, std::int64_t number) {
  plan::StepCursor cursor(thread_block.body);
  while (cursor.step() && cursor.number() < number) cursor.advance();
  if (!cursor.step()) return "its end";
  return step_text(thread_block, *cursor.step(), cursor.loops());
}

}  // namespace unisono::verify
