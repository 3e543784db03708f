// Operations on a CUDA device: what is on which stream, and how hooks hear of its end.

#include <c10/core/StreamGuard.h>

#include "backend.h"
#include "errors.h"
#include "profile.h"

namespace unisono::pytorch {

Device& Backend::device_of(c10::Device device, const Site& site) {
  const std::lock_guard lock(device_mutex_);
  const int known = device_ ? device_->device().index() : communicator_.device();
  if (known >= 0 && device.has_index() && device.index() != known)
    refuse_parts(site.text(), " got a tensor on ", device, ", but the group has cuda:", known,
                 " on this rank; each rank of a group has one device");
  if (!device_) device_.emplace(device);
  return *device_;
}

const Device* Backend::known_device() const {
  const std::lock_guard lock(device_mutex_);
  return device_ ? &*device_ : nullptr;
}

void Backend::check_batch(Batch& batch, c10::Device device, const Site& site) {
  if (!batch.device) batch.device = device;
  if (*batch.device != device)
    refuse_parts(site.text(), " got a tensor on ", device, " in a batch of tensors on ",
                 *batch.device, "; all must be on one device");
}

Backend::Started Backend::start_on_device(std::span<Operation> operations, bool is_async) {
  const c10d::OpType type = operations[0].type;
  const char* const name = operations[0].name;
  Communicator& members = connected(name);
  Device& device = device_of(operations[0].device, site(name));
  Batch* const batch = batches_.own();
  const c10::Stream stream = is_async || batch ? device.own_after_current() : device.current();
  const c10::StreamGuard guard(stream);
  Holding holding;
  for (Operation& operation : operations) {
    profile(name, operation.holding, is_async);
    const ProfiledScope scope(name, operation.holding);
    operation.call.options.stream = stream.native_handle();
    operation.call.options.compute_overlap = operation.compute_overlap;
    check(members.run(operation.call), name);
    operation.holding.finish();
    holding.add(std::move(operation.holding));
  }
  if (batch) return join(*batch, {}, std::move(holding));
  if (!is_async && !announces(stream)) return nullptr;
  return follow(type, name, stream, std::move(holding), is_async);
}

Backend::Started Backend::start_on_device(c10d::OpType type, const char* name, c10::Device device,
                                          std::span<const Message> messages, Holding holding,
                                          Hooks::Keys parts) {
  Communicator& members = connected(name);
  const c10::Stream stream = device_of(device, site(name)).own_after_current();
  const c10::StreamGuard guard(stream);
  profile(name, holding, true);
  const ProfiledScope scope(name, holding);
  if (!messages.empty()) {
    const CallOptions options{.timeout = timeout_.load(), .stream = stream.native_handle()};
    check(take(members.submit(messages, options), name).wait(), name);
  }
  holding.finish();
  return follow(type, name, stream, std::move(holding), true, std::move(parts));
}

Backend::Started Backend::follow(c10d::OpType type, const char* name, const c10::Stream& stream,
                                 Holding holding, bool is_async, Hooks::Keys parts) {
  const auto end = std::make_shared<c10::Event>(stream.device_type());
  end->record(stream);
  const auto work = c10::make_intrusive<Work>(
      rank_, type, name, place_, sequence_.load(), std::move(holding), completer_, hooks_,
      OnStream{stream, end, fate_, host_waits_ && is_async});
  if (announces(stream)) {
    parts.push_back(work->getCompletionKey());
    hooks_->complete_at(end, std::move(parts));
  }
  return work;
}

bool Backend::announces([[maybe_unused]] const c10::Stream& stream) const {
#ifdef UNISONO_HAS_HOOKS
  return hooks_->any() && !stream.is_capturing();
#else
  return false;
#endif
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  // A group that waits for its members connects them at the first call.
  if (!device.is_cuda() || !communicator_.valid()) return;
  const char* const name = "init_process_group";
  const c10::Stream stream = device_of(device, site(name)).current();
  const c10::StreamGuard guard(stream);
  CallOptions options;
  options.timeout = timeout_.load();
  options.stream = stream.native_handle();
  check(communicator_.barrier(options), name);
}

}  // namespace unisono::pytorch
