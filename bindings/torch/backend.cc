#include "backend.h"

#include <pybind11/pybind11.h>

#include <algorithm>

#include "errors.h"

namespace unisono::pytorch {
namespace {

// How long shutdown waits for what is under way before it aborts the group.
constexpr std::chrono::seconds shutdown_patience(5);

std::chrono::nanoseconds left_until(std::chrono::steady_clock::time_point deadline) {
  return std::max(deadline - std::chrono::steady_clock::now(),
                  std::chrono::steady_clock::duration::zero());
}

// " on rank 1 of group 'dp'", and which ranks of the job are meant if they are others.
std::string place_of(int rank, const std::string& group,
                     const std::vector<std::uint64_t>& global_ranks) {
  std::ostringstream out;
  out << " on rank " << rank << " of group '" << group << "'";
  const auto own = static_cast<std::size_t>(rank);
  if (own < global_ranks.size() && global_ranks[own] != own) {
    out << " (its ranks are the job's ";
    for (std::size_t i = 0; i < global_ranks.size(); ++i)
      out << (i == 0 ? "" : ", ") << global_ranks[i];
    out << ")";
  }
  return out.str();
}

// Those that live. Never destroyed: PyTorch may keep groups until after static destruction.
struct Registry {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<Backend>> backends;
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

}  // namespace

c10::intrusive_ptr<Backend> Backend::make(Communicator communicator, std::string name,
                                          std::vector<std::uint64_t> global_ranks,
                                          std::chrono::milliseconds timeout) {
  auto backend = c10::make_intrusive<Backend>(std::move(communicator), std::move(name),
                                              std::move(global_ranks), timeout);
  const std::lock_guard lock(registry().mutex);
  auto& backends = registry().backends;
  std::erase_if(backends, [](const auto& weak) { return weak.expired(); });
  backends.emplace_back(backend);
  return backend;
}

void Backend::close_all() {
  std::vector<c10::weak_intrusive_ptr<Backend>> backends;
  {
    const std::lock_guard lock(registry().mutex);
    backends = registry().backends;
  }
  for (const auto& weak : backends)
    if (const auto backend = weak.lock()) backend->shutdown();
}

Backend::Backend(Communicator communicator, std::string name,
                 std::vector<std::uint64_t> global_ranks, std::chrono::milliseconds timeout)
    : c10d::Backend(communicator.rank(), communicator.size()),
      communicator_(std::move(communicator)),
      name_(std::move(name)),
      global_ranks_(std::move(global_ranks)),
      place_(std::make_shared<const std::string>(place_of(rank_, name_, global_ranks_))),
      timeout_(timeout),
      completer_(std::make_shared<Completer>()) {}

Backend::~Backend() { shutdown(); }

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("unisono", timeout_);
  options->group_name = name_;
  options->global_ranks_in_group = global_ranks_;
  return options;
}

std::string Backend::where(const char* operation) const { return operation + *place_; }

std::chrono::nanoseconds Backend::limit(std::chrono::milliseconds of_call) const {
  return of_call == c10d::kUnsetTimeout || of_call.count() <= 0 ? timeout_ : of_call;
}

// Starting -------------------------------------------------------------------------------------

Backend::Started Backend::follow(c10d::OpType type, const char* name,
                                 std::vector<unisono::Work> calls, Holding holding) {
  auto work = c10::make_intrusive<Work>(rank_, type, name, place_, std::move(calls),
                                        std::move(holding), completer_);
  completer_->hold(work);
  return work;
}

Backend::Started Backend::join_batch(std::vector<unisono::Work> calls, Holding holding) {
  batch_->calls.insert(batch_->calls.end(), calls.begin(), calls.end());
  batch_->holding.add(std::move(holding));
  return nullptr;
}

Backend::Started Backend::start(Operation operation, std::chrono::milliseconds timeout,
                                bool is_async) {
  ++sequence_;
  operation.call.options.timeout = limit(timeout);
  if (!is_async && !batch_) {
    if (const Status status = communicator_.run(operation.call); !status.ok())
      raise(status.error(), where(operation.name));
    operation.holding.finish();
    return nullptr;
  }
  auto started = communicator_.submit(operation.call);
  if (!started.ok()) raise(started.error(), where(operation.name));
  std::vector<unisono::Work> calls{std::move(*started)};
  if (batch_) return join_batch(std::move(calls), std::move(operation.holding));
  return follow(operation.type, operation.name, std::move(calls), std::move(operation.holding));
}

Backend::Started Backend::start(std::vector<Operation> operations,
                                std::chrono::milliseconds timeout, bool is_async) {
  if (operations.empty()) refuse("a coalesced operation got no tensors");
  const c10d::OpType type = operations[0].type;
  const char* const name = operations[0].name;
  std::vector<unisono::Work> calls;
  Holding holding;
  for (Operation& operation : operations) {
    ++sequence_;
    operation.call.options.timeout = limit(timeout);
    calls.push_back(take(communicator_.submit(operation.call), where(name)));
    holding.add(std::move(operation.holding));
  }
  if (batch_) return join_batch(std::move(calls), std::move(holding));
  Started work = follow(type, name, std::move(calls), std::move(holding));
  if (is_async) return work;
  work->wait();
  return nullptr;
}

// Life -----------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= size_)
      refuse_parts("split on rank ", rank_, " got the rank ", rank, "; it must be 0 to ",
                   size_ - 1);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const bool joins = own != ranks.end();
  Communicator part =
      take(communicator_.split(joins ? ranks[0] : -1, static_cast<int>(own - ranks.begin())),
           where("split"));
  if (!joins) return nullptr;
  std::vector<std::uint64_t> members;
  for (const int rank : ranks)
    members.push_back(global_ranks_.empty() ? static_cast<std::uint64_t>(rank)
                                            : global_ranks_[static_cast<std::size_t>(rank)]);
  return make(std::move(part), options ? options->group_name : name_ + ":split", std::move(members),
              options ? options->timeout : timeout_);
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
  // What is waited for here may need the GIL: a future's callback, the freeing of a tensor.
  std::optional<pybind11::gil_scoped_release> release;
  if (Py_IsInitialized() && PyGILState_Check()) release.emplace();
  const auto deadline = std::chrono::steady_clock::now() +
                        std::min<std::chrono::nanoseconds>(shutdown_patience, timeout_);
  for (const auto& work : completer_->unfinished()) {
    if (work->drive(left_until(deadline))) continue;
    TORCH_WARN(work->where(), " was still pending ", shutdown_patience.count(),
               " s after its group was destroyed; the group is aborted");
    communicator_.abort();
    break;
  }
  static_cast<void>(communicator_.destroy());
  completer_->stop();
}

}  // namespace unisono::pytorch
