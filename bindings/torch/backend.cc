#include "backend.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "errors.h"
#include "gil.h"
#include "profile.h"

namespace unisono::pytorch {
namespace {

// How long shutdown waits for what is under way before it aborts the group.
constexpr std::chrono::seconds shutdown_patience(5);
// How long the end of the process waits for hooks that run: Flight Recorder's dump takes 30 s at
// most, 15 with stack traces and 15 without, and as long to be prepared.
constexpr std::chrono::seconds hooks_patience(65);

std::chrono::nanoseconds left_until(std::chrono::steady_clock::time_point deadline) {
  return std::max(deadline - std::chrono::steady_clock::now(),
                  std::chrono::steady_clock::duration::zero());
}

// Those that live. Never destroyed: PyTorch may keep groups until after static destruction.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Backend*, c10::weak_intrusive_ptr<Backend>> backends;
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

// Null if there is none any more.
c10::intrusive_ptr<Backend> living(const Backend* backend) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().backends.find(backend);
  return found == registry().backends.end() ? nullptr : found->second.lock();
}

}  // namespace

c10::intrusive_ptr<Backend> Backend::make(Communicator communicator, InitOptions joining,
                                          std::string name, std::vector<std::uint64_t> global_ranks,
                                          std::chrono::milliseconds timeout, bool host_waits) {
  auto backend =
      c10::make_intrusive<Backend>(std::move(communicator), std::move(joining), std::move(name),
                                   std::move(global_ranks), timeout, host_waits);
  const std::lock_guard lock(registry().mutex);
  registry().backends.emplace(backend.get(), backend);
  return backend;
}

Backend& Backend::of(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* const found = dynamic_cast<Backend*>(backend.get());
  if (found == nullptr)
    refuse("the group's backend is " + std::string(backend->getBackendName()) + ", not unisono");
  return *found;
}

void Backend::close_all() {
  std::vector<c10::intrusive_ptr<Backend>> backends;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [own, weak] : registry().backends)
      if (auto backend = weak.lock()) backends.push_back(std::move(backend));
  }
  Hooks::stop_watching(deadline_after(hooks_patience));
  for (const auto& backend : backends) backend->shutdown();
  backends.clear();
  Completer::await_threads(deadline_after(shutdown_patience));
}

Backend::Backend(Communicator communicator, InitOptions joining, std::string name,
                 std::vector<std::uint64_t> global_ranks, std::chrono::milliseconds timeout,
                 bool host_waits)
    : c10d::Backend(joining.rank, joining.world_size),
      communicator_(std::move(communicator)),
      joining_(std::move(joining)),
      name_(std::move(name)),
      global_ranks_(std::move(global_ranks)),
      place_(make_place()),
      timeout_(timeout),
      host_waits_(host_waits),
      fate_(std::make_shared<Fate>(communicator_)),
      completer_(std::make_shared<Completer>()),
      hooks_(std::make_shared<Hooks>(completer_)) {
  hooks_->watch(fate_);
}

Backend::~Backend() { shutdown(); }

// A weak reference keeps an object from being destroyed, so the registry's is dropped first.
void Backend::release_resources() {
  const std::lock_guard lock(registry().mutex);
  registry().backends.erase(this);
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("unisono", timeout_.load());
  options->group_name = name_;
  options->global_ranks_in_group = global_ranks_;
  return options;
}

std::shared_ptr<const std::string> Backend::make_place() const {
  std::ostringstream out;
  out << " on rank " << rank_ << " of group '" << name_ << "'";
  const auto own = static_cast<std::size_t>(rank_);
  if (own < global_ranks_.size() && global_ranks_[own] != own) {
    out << " (its ranks are the job's ";
    for (std::size_t i = 0; i < global_ranks_.size(); ++i)
      out << (i == 0 ? "" : ", ") << global_ranks_[i];
    out << ")";
  }
  return std::make_shared<const std::string>(out.str());
}

std::string Backend::where(const char* operation) const { return operation + *place_; }

Communicator& Backend::connected(const char* operation) {
  if (!communicator_.valid())
    refuse_state(where(operation) +
                 ": the group has not been initialized. Call reconfigure() on all members before "
                 "other calls: it has no members yet");
  return communicator_;
}

void Backend::check(const Status& status, const char* operation) const {
  if (status.ok()) return;
  hooks_->fail(status.error());
  raise(status.error(), where(operation));
}

std::chrono::nanoseconds Backend::limit(std::chrono::milliseconds of_call) {
  const bool is_unset = of_call == c10d::kUnsetTimeout || of_call.count() <= 0;
  return (is_unset ? timeout_.load() : of_call) + added_timeout_.exchange({});
}

// Starting -------------------------------------------------------------------------------------

void Backend::profile(const char* operation, const Holding& holding, bool is_async) const {
  if (is_profiled())
    profile_group({name_, pg_desc_, global_ranks_, rank_, size_, sequence_.load()}, operation,
                  holding, is_async);
}

c10::intrusive_ptr<Work> Backend::follow(c10d::OpType type, const char* name, Holding holding,
                                         bool is_async) {
  profile(name, holding, is_async);
  return c10::make_intrusive<Work>(rank_, type, name, place_, sequence_.load(), std::move(holding),
                                   completer_, hooks_);
}

Backend::Started Backend::begun(const c10::intrusive_ptr<Work>& work,
                                std::vector<unisono::Work> calls, Hooks::Keys parts) {
  work->begin(std::move(calls), std::move(parts));
  completer_->hold(work);
  return work;
}

unisono::Work Backend::submit(const char* name, std::span<const Message> messages,
                              std::chrono::nanoseconds patience) {
  return take(connected(name).submit(messages, {.timeout = patience}), name);
}

Backend::Started Backend::join(Batch& batch, std::vector<unisono::Work> calls, Holding holding) {
  batch.calls.insert(batch.calls.end(), calls.begin(), calls.end());
  batch.holding.add(std::move(holding));
  return part_of(batch.parts);
}

Backend::Started Backend::put_off(Batch& batch, const Message& message, Holding holding) {
  (message.peer == any_source ? batch.from_any : batch.messages).push_back(message);
  batch.holding.add(std::move(holding));
  return part_of(batch.message_parts);
}

Backend::Started Backend::part_of(Hooks::Keys& parts) const {
  if (!hooks_->any()) return nullptr;
  auto part = c10::make_intrusive<Part>();
  parts.push_back(part->getCompletionKey());
  return part;
}

Backend::Started Backend::start(Operation operation, std::chrono::milliseconds timeout,
                                bool is_async) {
  ++sequence_;
  operation.call.options.timeout = limit(timeout);
  Batch* const batch = batches_.own();
  if (batch) check_batch(*batch, operation.device, site(operation.name));
  if (operation.device.is_cuda()) return start_on_device(std::span(&operation, 1), is_async);
  if (!is_async && !batch && hooks_->any()) {
    const auto work =
        follow(operation.type, operation.name, std::move(operation.holding), is_async);
    check(connected(operation.name).run(operation.call), operation.name);
    work->settle();
    work->wait();
    return work;
  }
  if (!is_async && !batch) {
    profile(operation.name, operation.holding, false);
    const ProfiledScope scope(operation.name, operation.holding);
    check(connected(operation.name).run(operation.call), operation.name);
    operation.holding.finish();
    return nullptr;
  }
  const auto submitted = [&] {
    return take(connected(operation.name).submit(operation.call), operation.name);
  };
  if (batch) return join(*batch, {submitted()}, std::move(operation.holding));
  const auto work = follow(operation.type, operation.name, std::move(operation.holding));
  return begun(work, {submitted()});
}

Backend::Started Backend::start(std::vector<Operation> operations,
                                std::chrono::milliseconds timeout, bool is_async) {
  if (operations.empty()) refuse("a coalesced operation got no tensors");
  const c10d::OpType type = operations[0].type;
  const char* const name = operations[0].name;
  const c10::Device device = operations[0].device;
  for (Operation& operation : operations) {
    ++sequence_;
    operation.call.options.timeout = limit(timeout);
    if (operation.device != device)
      refuse_parts(site(name).text(), " got tensors on ", device, " and on ", operation.device,
                   "; all must be on one device");
  }
  Batch* const batch = batches_.own();
  if (batch) check_batch(*batch, device, site(name));
  if (device.is_cuda()) return start_on_device(operations, is_async);
  Holding holding;
  for (Operation& operation : operations) holding.add(std::move(operation.holding));
  Communicator& members = connected(name);
  c10::intrusive_ptr<Work> work;
  if (!batch) work = follow(type, name, std::move(holding));
  std::vector<unisono::Work> calls;
  std::optional<Error> refused;
  for (const Operation& operation : operations) {
    auto started = members.submit(operation.call);
    if (started.ok()) {
      calls.push_back(std::move(*started));
      continue;
    }
    refused = started.error();
    break;
  }
  // What was started before a refused call keeps its memory until it ends.
  const Started begun_or_joined =
      batch ? join(*batch, std::move(calls), std::move(holding)) : begun(work, std::move(calls));
  if (refused) check(*refused, name);
  if (is_async || batch) return begun_or_joined;
  work->wait();
  return hooks_->any() ? begun_or_joined : nullptr;
}

// Life -----------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= size_)
      refuse_parts("split on rank ", rank_, " got the rank ", rank, "; it must be 0 to ",
                   size_ - 1);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const bool joins = own != ranks.end();
  if (store && store == split_store_) return living(split_part_);
  split_store_ = store;
  split_part_ = nullptr;
  Communicator part =
      take(connected("split").split(joins ? ranks[0] : -1, static_cast<int>(own - ranks.begin())),
           "split");
  if (!joins) return nullptr;
  std::vector<std::uint64_t> members;
  for (const int rank : ranks)
    members.push_back(global_ranks_.empty() ? static_cast<std::uint64_t>(rank)
                                            : global_ranks_[static_cast<std::size_t>(rank)]);
  InitOptions joining = joining_;
  joining.rank = part.rank();
  joining.world_size = part.size();
  auto made =
      make(std::move(part), std::move(joining), options ? options->group_name : name_ + ":split",
           std::move(members), options ? options->timeout : timeout_.load(), host_waits_);
  split_part_ = made.get();
  return made;
}

c10d::ErrorType Backend::getError() {
  const Status status = communicator_.failure();
  if (status.ok()) return c10d::ErrorType::SUCCESS;
  if (status.error().timed_out) return c10d::ErrorType::TIMEOUT;
  return status.error().kind == ErrorKind::peer ? c10d::ErrorType::REMOTE_ERROR
                                                : c10d::ErrorType::COMM_ERROR;
}

void Backend::abort() { communicator_.abort(); }

void Backend::shutdown() {
  if (std::exchange(is_shut_, true)) return;
  if (process_ != getpid()) {
    // A forked process has no thread to end, and destroying what that thread uses would wait for
    // it.
    static auto* const of_parents = new std::vector<std::shared_ptr<Completer>>;
    of_parents->push_back(completer_);
    return;
  }
  const WithoutGil release;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  end_handle();
#endif
  if (hooks_->any()) hooks_->look();
  hooks_->watch(nullptr);
  end_what_is_pending(
      deadline_after(std::min<std::chrono::nanoseconds>(shutdown_patience, timeout_.load())));
  completer_->stop(deadline_after(shutdown_patience));
}

void Backend::end_what_is_pending(Deadline deadline) {
  for (const auto& work : completer_->unfinished()) {
    if (work->drive(left_until(deadline))) continue;
    abort_pending(work->where());
    break;
  }
  fate_->keep();
  const Device* const device = known_device();
  if (device == nullptr) {
    static_cast<void>(communicator_.destroy());
    return;
  }
  // Only the communicator knows what it has on streams; it waits for that.
  std::future<bool> over;
  try {
    over = std::async(std::launch::async, [this] { return communicator_.destroy().ok(); });
  } catch (const std::system_error&) {
    // Without a thread, and so for as long as its calls may take.
    static_cast<void>(communicator_.destroy());
    return;
  }
  if (over.wait_until(deadline) == std::future_status::timeout) {
    const std::string what = c10::str("what is on ", device->device(), *place_);
    fate_->fail({.kind = ErrorKind::peer,
                 .aborted = true,
                 .peer = rank_,
                 .message = "it was aborted, because its group was destroyed"});
    abort_pending(what);
  }
  over.wait();
}

void Backend::abort_pending(const std::string& what) {
  TORCH_WARN(what, " was still pending ", shutdown_patience.count(),
             " s after its group was destroyed; the group is aborted");
  communicator_.abort();
}

}  // namespace unisono::pytorch
