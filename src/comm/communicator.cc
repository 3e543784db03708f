#include <unisono/communicator.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/dump.h"
#include "comm/job/launcher_note.h"
#include "comm/run/out_of_memory.h"

namespace unisono {

using comm::Scheduler;

namespace {

Communicator::Core& core_of(const std::shared_ptr<void>& core) {
  return *static_cast<Communicator::Core*>(core.get());
}
Scheduler& scheduler_of(const std::shared_ptr<void>& core) { return *core_of(core).scheduler; }

Error no_communicator() {
  return misuse("this Communicator is empty: make one with Communicator::init or split");
}

// Starts the call that `prepare` fills a task for.
template <class Prepare>
Result<Work> start(const std::shared_ptr<Communicator::Core>& core, const Prepare& prepare) {
  if (!core) return no_communicator();
  return comm::or_out_of_memory(core->rank, [&]() -> Result<Work> {
    auto state = std::make_shared<Work::State>();
    UNISONO_TRY(prepare(*core, state->task));
    state->task.keeps_alive = state;
    if (auto status = core->scheduler->submit(state->task); !status.ok()) {
      state->task.keeps_alive.reset();
      return status.take_error();
    }
    return Work(std::move(state), core);
  });
}

// Runs the message at once if it asks for nothing else, or else as a task.
Status run_message(Communicator& of, Communicator::Core* core, const Message& message,
                   const CallOptions& options) {
  const bool is_plain =
      !options.stream && options.timeout.count() == 0 && options.tag == 0 && !options.names_plan();
  if (Status status; core != nullptr && is_plain && core->try_run_inline(message, status))
    return status;
  UNISONO_ASSIGN(Work work, of.submit(std::span(&message, 1), options));
  return work.wait();
}

}  // namespace

// In a process that was forked meanwhile nothing will ever happen to it: status() says so.
bool Work::done() const { return !state_ || state_->task.done() || core_of(core_).is_forked(); }

bool Work::test() {
  if (done()) return true;
  scheduler_of(core_).help();
  return state_->task.done();
}

Status Work::wait() {
  if (!state_) return misuse("this Work is empty");
  if (!state_->task.done()) UNISONO_TRY(core_of(core_).check_process());
  return scheduler_of(core_).wait(state_->task, INT64_MAX);
}

Status Work::wait_for(std::chrono::nanoseconds patience) {
  if (!state_) return misuse("this Work is empty");
  if (!state_->task.done()) UNISONO_TRY(core_of(core_).check_process());
  Scheduler& scheduler = scheduler_of(core_);
  return scheduler.wait(state_->task, scheduler.now_ns() + patience.count());
}

Status Work::status() const {
  if (!state_) return misuse("this Work is empty");
  if (state_->task.done()) return state_->task.outcome();
  UNISONO_TRY(core_of(core_).check_process());
  return misuse("call ", sequence(), " is not complete; wait for it or test it first");
}

std::uint64_t Work::sequence() const { return state_ ? state_->task.entry.sequence : 0; }

int Work::source() const { return state_ && state_->task.done() ? state_->task.source : -1; }

Result<Communicator> Communicator::init(const InitOptions& options) {
  auto made = comm::or_out_of_memory(options.rank, [&]() -> Result<Communicator> {
    UNISONO_ASSIGN(auto job, comm::Job::join(options));
    auto world = job->take_world();
    UNISONO_ASSIGN(auto core, Core::make(std::move(job), std::move(world), "world"));
    return Communicator(std::move(core));
  });
  if (made.ok())
    comm::withdraw_note();
  else
    comm::note_culprit(made.error(), options.rank, options.world_size);
  return made;
}

void decline(const InitOptions& options, const Error& why) { comm::Job::decline(options, why); }

int Communicator::rank() const { return core_ ? core_->rank : -1; }
int Communicator::size() const { return core_ ? core_->size : 0; }
int Communicator::nodes() const { return core_ ? core_->host->plans()->placement().nodes() : 0; }
int Communicator::node_of(int rank) const {
  if (!core_ || rank < 0 || rank >= core_->size) return -1;
  return core_->host->plans()->placement().node_of(rank);
}
bool Communicator::is_on_one_host() const {
  return core_ && std::ranges::all_of(core_->world_ranks(),
                                      [&](int one) { return core_->job->is_on_this_host(one); });
}

std::uint64_t Communicator::id() const { return core_ ? core_->id : 0; }
const std::vector<int>& Communicator::world_ranks() const {
  static const std::vector<int> none;
  return core_ ? core_->world_ranks() : none;
}

Status Communicator::run(const Call& call) {
  return core_ ? core_->run(comm::view_of(call)) : no_communicator();
}

Result<Work> Communicator::submit(const Call& call) {
  return start(core_, [&](Core& core, comm::Task& task) -> Status {
    UNISONO_TRY(core.prepare(comm::view_of(call), task));
    task.keep_lists();
    return {};
  });
}

Result<Work> Communicator::submit(std::span<const Message> messages, const CallOptions& options) {
  return start(core_,
               [&](Core& core, comm::Task& task) { return core.prepare(messages, options, task); });
}

Status Communicator::send(const void* data, std::int64_t count, DataType type, int peer,
                          const CallOptions& options) {
  return run_message(
      *this, core_.get(),
      {.is_send = true, .send_data = data, .count = count, .type = type, .peer = peer}, options);
}

Status Communicator::recv(void* data, std::int64_t count, DataType type, int peer,
                          const CallOptions& options) {
  return run_message(
      *this, core_.get(),
      {.is_send = false, .recv_data = data, .count = count, .type = type, .peer = peer}, options);
}

Result<Communicator::CustomBlocks> Communicator::custom_blocks(std::string_view program) const {
  if (!core_) return no_communicator();
  UNISONO_ASSIGN(const plan::Header header, core_->host->plans()->custom(program));
  return CustomBlocks{.input = header.input_blocks, .output = header.output_blocks};
}

Result<Communicator> Communicator::split(int color, int key) {
  if (!core_) return no_communicator();
  UNISONO_TRY(core_->usable());
  return comm::or_out_of_memory(core_->rank, [&] { return core_->split(color, key); });
}

Result<Communicator> Communicator::shrink(std::span<const int> excluded) {
  if (!core_) return no_communicator();
  UNISONO_TRY(core_->check_process());
  return comm::or_out_of_memory(core_->rank, [&] { return core_->shrink(excluded); });
}

Status Communicator::register_plans(std::span<const std::string> plans, std::uint64_t min_bytes,
                                    std::uint64_t max_bytes) {
  if (!core_) return no_communicator();
  return comm::or_out_of_memory(core_->rank,
                                [&] { return core_->register_plans(plans, min_bytes, max_bytes); });
}

bool Communicator::compares_calls() const { return core_ && core_->checks_calls; }

Status Communicator::refuse_call(std::string_view why) {
  return core_ ? core_->refuse_call(why) : no_communicator();
}

Status Communicator::register_memory(const void* data, std::size_t bytes) {
  if (!core_) return no_communicator();
  UNISONO_TRY(core_->usable());
  comm::DevicePath* const device = core_->device();
  if (device == nullptr)
    return misuse("memory cannot be registered on rank ", core_->rank,
                  " before its CUDA device is known; name the device in init, or make a call on a "
                  "stream first");
  if (data == nullptr || bytes == 0)
    return misuse("cannot register ", bytes,
                  data == nullptr ? " bytes at the null address" : " bytes", " on rank ",
                  core_->rank, "; register at least 1 byte at a valid address");
  constexpr std::int64_t patience_ns = 1'000'000'000;
  return device->connections().register_memory(data, bytes, patience_ns);
}

Result<Window> Communicator::make_window(void* data, std::size_t bytes, bool is_on_device) {
  if (!core_) return no_communicator();
  return comm::or_out_of_memory(core_->rank,
                                [&] { return core_->make_window(data, bytes, is_on_device); });
}

Status Communicator::put(const Window& window, const void* data, std::size_t bytes, int peer,
                         std::size_t offset, int signal, const SignalOptions& options) {
  if (!core_) return no_communicator();
  return core_->put(window, data, bytes, peer, offset, signal, options);
}

Status Communicator::get(const Window& window, void* data, std::size_t bytes, int peer,
                         std::size_t offset, const AccessOptions& options) {
  if (!core_) return no_communicator();
  return core_->get(window, data, bytes, peer, offset, options);
}

Result<std::uint64_t> Communicator::change_word(const Window& window, WordOperation operation,
                                                std::uint64_t operand, int peer, std::size_t offset,
                                                std::uint64_t expected,
                                                const AccessOptions& options) {
  if (!core_) return no_communicator();
  return core_->change_word(window, operation, operand, expected, peer, offset, options);
}

Status Communicator::flush(int peer, const AccessOptions& options) {
  return core_ ? core_->flush(peer, options) : no_communicator();
}

Status Communicator::signal(int peer, int signal, const SignalOptions& options) {
  return core_ ? core_->signal(peer, signal, options) : no_communicator();
}

Result<bool> Communicator::test_signals(std::span<const SignalWait> waits) {
  if (!core_) return no_communicator();
  return core_->test_signals(waits);
}

Status Communicator::wait_signals(std::span<const SignalWait> waits, const SignalOptions& options) {
  if (!core_) return no_communicator();
  return core_->wait_signals(waits, options);
}

Status Communicator::suspend() { return core_ ? core_->suspend() : no_communicator(); }

Status Communicator::resume() { return core_ ? core_->resume() : no_communicator(); }

bool Communicator::is_suspended() const {
  return core_ && core_->suspended.load(std::memory_order_acquire);
}

bool Communicator::can_choose(const Call& call) {
  return core_ && core_->can_choose(comm::view_of(call));
}

Result<Explanation> Communicator::explain(Collective collective, std::uint64_t bytes,
                                          const ExplainOptions& options) const {
  if (!core_) return no_communicator();
  const comm::DevicePath* const device = core_->device();
  if (device == nullptr || device->plans() == nullptr)
    return core_->host->plans()->explain(collective, bytes, options);
  // With what the communicator's settings say of all calls.
  ExplainOptions settled = options;
  UNISONO_ASSIGN(comm::Plans* const plans, device->plans_for(collective, settled.options));
  auto explanation = plans->explain(collective, bytes, settled);
  if (!explanation.ok()) return explanation;
  if (const std::string& why = device->connections().why_staged(); !why.empty())
    explanation->note = explanation->note.empty() ? why : str(why, ". ", explanation->note);
  return explanation;
}

MemoryReport Communicator::memory() const {
  MemoryReport report;
  if (!core_ || core_->is_forked()) return report;
  const Scheduler::Pause pause(*core_->scheduler);
  core_->host->report(report);
  if (core_->device() != nullptr) core_->device()->report(report);
  if (const auto* const service = core_->service_made.load(std::memory_order_acquire))
    service->report(report);
  report.record_bytes = core_->scheduler->record_bytes() + core_->status_page->memory_bytes();
  report.total_bytes = report.scratch_bytes + report.record_bytes + report.plans_bytes;
  for (const ConnectionMemory& connection : report.connections)
    report.total_bytes += connection.bytes;
  return report;
}

std::string Communicator::dump_record() const {
  return core_ ? comm::record_json(*core_, "request") : std::string();
}

Status Communicator::dump() const {
  if (!core_) return no_communicator();
  UNISONO_TRY(core_->check_process());
  UNISONO_TRY(comm::write_dump(*core_, "request"));
  if (core_->size > 1) core_->group->ask_for_dumps();
  return {};
}

int Communicator::device() const {
  return core_ && core_->device() != nullptr ? core_->device()->connections().device().ordinal()
                                             : -1;
}

Status Communicator::failure() const { return core_ ? core_->alive() : no_communicator(); }

void Communicator::abort() {
  if (!core_ || core_->is_forked()) return;
  Error error = aborted_error("communicator ", core_->id, " was aborted on rank ", core_->rank);
  error.peer = core_->rank;
  core_->scheduler->fail(error);
}

Status Communicator::destroy() {
  if (!core_ || core_->is_forked() || core_->destroyed.exchange(true)) return {};
  return core_->drain();
}

}  // namespace unisono
