// Completion queues.

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/objects.h"

namespace unisono::test::fabric {
namespace {

// Of a bounded queue whose caller does not say how many it needs.
constexpr std::size_t default_completions = 64;

int close_queue(fid* object) {
  auto& queue = object_of<Queue, fid_cq>(object);
  Domain& domain = *queue.domain;
  {
    const std::lock_guard lock(domain.mutex);
    if (queue.endpoints > 0) {
      complain("a completion queue is closed before its %d endpoints", queue.endpoints);
      return -FI_EBUSY;
    }
    if (const int code = close_below(queue.below); code != 0) return code;
    domain.queues.erase(&queue);
  }
  delete &queue;
  return 0;
}

int control_queue(fid* object, int command, void* argument) {
  auto& queue = object_of<Queue, fid_cq>(object);
  return command == FI_GETWAIT ? fi_control(&queue.below->fid, command, argument) : -FI_ENOSYS;
}

void pump(Queue& queue) {
  for (Endpoint* endpoint : queue.domain->endpoints)
    if (endpoint->is_enabled) endpoint->wire.pump(*endpoint);
}

ssize_t read(fid_cq* object, void* out, std::size_t count) {
  auto& queue = static_cast<Queue&>(*object);
  const std::lock_guard lock(queue.domain->mutex);
  pump(queue);
  queue.drain();
  if (queue.items.empty()) return queue.is_overrun ? -FI_EOVERRUN : -FI_EAGAIN;
  if (queue.items.front().error != 0) return -FI_EAVAIL;
  auto* entries = static_cast<fi_cq_data_entry*>(out);
  std::size_t taken = 0;
  while (taken < count && !queue.items.empty() && queue.items.front().error == 0) {
    entries[taken++] = queue.items.front().entry;
    queue.items.pop_front();
  }
  return static_cast<ssize_t>(taken);
}

ssize_t read_error(fid_cq* object, fi_cq_err_entry* out, std::uint64_t) {
  auto& queue = static_cast<Queue&>(*object);
  const std::lock_guard lock(queue.domain->mutex);
  if (queue.items.empty() || queue.items.front().error == 0) return -FI_EAGAIN;
  const Queue::Item& item = queue.items.front();
  const bool is_named = !queue.domain->demands().is_anonymous || (item.entry.flags & FI_RMA) == 0;
  *out = {};
  out->op_context = is_named ? item.entry.op_context : nullptr;
  out->flags = is_named ? item.entry.flags : 0;
  out->err = item.error;
  queue.items.pop_front();
  return 1;
}

}  // namespace

int open_queue(fid_domain* object, fi_cq_attr* attributes, fid_cq** out, void* context) {
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_queue,
                      .bind = absent,
                      .control = control_queue,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  static fi_ops_cq queue_calls{.size = sizeof(fi_ops_cq),
                               .read = read,
                               .readfrom = absent,
                               .readerr = read_error,
                               .sread = absent,
                               .sreadfrom = absent,
                               .signal = absent,
                               .strerror = absent};
  auto& domain = static_cast<Domain&>(*object);
  const Demands& demands = domain.demands();
  if (attributes->format != FI_CQ_FORMAT_DATA) return -FI_ENOSYS;
  // The card takes over what has completed, so the descriptor beneath would stay silent.
  if (attributes->wait_obj != FI_WAIT_NONE && demands.holds_writes()) return -FI_ENOSYS;
  if (demands.most_completions > 0 && attributes->size > demands.most_completions) {
    complain("a completion queue of %zu is asked for; it may have %zu", attributes->size,
             demands.most_completions);
    return -FI_EINVAL;
  }
  auto made = std::make_unique<Queue>();
  made->domain = &domain;
  if (demands.most_completions > 0)
    made->size = attributes->size > 0 ? attributes->size
                                      : std::min(default_completions, demands.most_completions);
  const std::lock_guard lock(domain.mutex);
  if (const int code = fi_cq_open(domain.below, attributes, &made->below, nullptr); code != 0)
    return code;
  made->fid = {.fclass = FI_CLASS_CQ, .context = context, .ops = &calls};
  made->ops = &queue_calls;
  domain.queues.insert(made.get());
  *out = made.release();
  return 0;
}

void Queue::deliver(const fi_cq_data_entry& entry, int error) {
  if (is_overrun) return;
  if (size > 0 && items.size() >= size) {
    complain("a completion queue of %zu is overrun", size);
    is_overrun = true;
    items.clear();
    items.push_back({.entry = {}, .error = FI_EOVERRUN});
    return;
  }
  items.push_back({.entry = entry, .error = error});
}

void Queue::complete(const fi_cq_data_entry& entry, int error) {
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (!domain->operations.contains(operation)) {
    // A peer's write.
    fi_cq_data_entry own = entry;
    own.op_context = nullptr;
    deliver(own, error);
    return;
  }
  fi_cq_data_entry own = entry;
  own.op_context = operation->context;
  if (error != 0) own.flags = operation->flags;
  const std::shared_ptr<Write> write = operation->write;
  const std::uint64_t registration = operation->registration;
  if (write && operation->endpoint != nullptr) operation->endpoint->wire.completed();
  domain->drop(operation);
  if (write) {
    if (error != 0) write->error = error;
    if (--write->under_way > 0 || !write->pieces.empty() || !write->reports) return;
    error = write->error;
  }
  if (registration != 0 && !domain->registrations.contains(registration) && error == 0) {
    complain("a registration was closed while its memory was in use");
    error = FI_EINVAL;
  }
  deliver(own, error);
}

void Queue::drain() {
  // The provider beneath crashes where one of its endpoints is not enabled yet.
  for (const Endpoint* endpoint : domain->endpoints)
    if (!endpoint->is_enabled && (endpoint->transmits == this || endpoint->receives == this))
      return;
  std::array<fi_cq_data_entry, 16> entries;
  for (;;) {
    const ssize_t count = fi_cq_read(below, entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry failed{};
      if (fi_cq_readerr(below, &failed, 0) != 1) return;
      fi_cq_data_entry entry{};
      entry.op_context = failed.op_context;
      entry.flags = failed.flags;
      complete(entry, failed.err);
      continue;
    }
    if (count <= 0) return;
    for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)], 0);
  }
}

}  // namespace unisono::test::fabric
