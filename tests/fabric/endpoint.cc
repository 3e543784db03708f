// Endpoints: what makes one, and messages.

#include <rdma/fi_cm.h>

#include <chrono>
#include <thread>

#include "fabric/endpoint.h"

namespace unisono::test::fabric {
namespace {

// How long a closing endpoint waits for writes that have completed and not left: both must have
// passed, so that a slow machine waits longer.
constexpr std::chrono::seconds last_writes_wait{2};
constexpr int last_writes_looks = 20'000;

int close_endpoint(fid* object) {
  auto& endpoint = object_of<Endpoint, fid_ep>(object);
  Domain& domain = *endpoint.domain;
  {
    const std::lock_guard lock(domain.mutex);
    if (endpoint.registrations > 0) {
      complain("an endpoint is closed before its %d registrations", endpoint.registrations);
      return -FI_EBUSY;
    }
    const auto end = std::chrono::steady_clock::now() + last_writes_wait;
    for (int looks = 0; !endpoint.wire.is_empty() &&
                        (looks < last_writes_looks || std::chrono::steady_clock::now() < end);
         ++looks) {
      endpoint.wire.pump(endpoint);
      endpoint.transmits->drain();
      std::this_thread::yield();
    }
    if (const int code = close_below(endpoint.below); code != 0) return code;
    for (Operation* operation : domain.operations)
      if (operation->endpoint == &endpoint) operation->endpoint = nullptr;
    for (Queue* queue : {endpoint.transmits, endpoint.receives})
      if (queue != nullptr) --queue->endpoints;
    domain.endpoints.erase(&endpoint);
  }
  delete &endpoint;
  return 0;
}

int bind_endpoint(fid* object, fid* to, std::uint64_t flags) {
  auto& endpoint = object_of<Endpoint, fid_ep>(object);
  const std::lock_guard lock(endpoint.domain->mutex);
  if (to->fclass == FI_CLASS_AV)
    return fi_ep_bind(endpoint.below, &object_of<Addresses, fid_av>(to).below->fid, flags);
  if (to->fclass != FI_CLASS_CQ || (flags & ~(FI_TRANSMIT | FI_RECV)) != 0) return -FI_ENOSYS;
  auto& queue = object_of<Queue, fid_cq>(to);
  if (const int code = fi_ep_bind(endpoint.below, &queue.below->fid, flags); code != 0) return code;
  const auto bind = [&](Queue*& place) {
    place = &queue;
    ++queue.endpoints;
  };
  if ((flags & FI_TRANSMIT) != 0) bind(endpoint.transmits);
  if ((flags & FI_RECV) != 0) bind(endpoint.receives);
  return 0;
}

int control_endpoint(fid* object, int command, void*) {
  auto& endpoint = object_of<Endpoint, fid_ep>(object);
  if (command != FI_ENABLE) return -FI_ENOSYS;
  const std::lock_guard lock(endpoint.domain->mutex);
  if (endpoint.transmits == nullptr || endpoint.receives == nullptr) return -FI_ENOCQ;
  const int code = fi_enable(endpoint.below);
  endpoint.is_enabled = code == 0;
  return code;
}

int get_name(fid* object, void* out, std::size_t* bytes) {
  auto& endpoint = object_of<Endpoint, fid_ep>(object);
  const std::lock_guard lock(endpoint.domain->mutex);
  return fi_getname(&endpoint.below->fid, out, bytes);
}

int get_option(fid* object, int level, int name, void* value, std::size_t* bytes) {
  return fi_getopt(&object_of<Endpoint, fid_ep>(object).below->fid, level, name, value, bytes);
}

int set_option(fid* object, int level, int name, const void* value, std::size_t bytes) {
  return fi_setopt(&object_of<Endpoint, fid_ep>(object).below->fid, level, name, value, bytes);
}

// A message either way, once it is allowed.
template <class Post>
ssize_t post_message(Endpoint& endpoint, const void* data, std::size_t bytes, void* descriptor,
                     std::uint64_t direction, void* context, Post post) {
  const std::lock_guard lock(endpoint.domain->mutex);
  if (!endpoint.is_enabled) return -FI_EOPBADSTATE;
  const Demands& demands = endpoint.domain->demands();
  if (direction == FI_SEND && demands.most_message_bytes > 0 &&
      bytes > demands.most_message_bytes) {
    complain("a message has %zu bytes; it may have %zu", bytes, demands.most_message_bytes);
    return -FI_EMSGSIZE;
  }
  std::uint64_t registration = 0;
  if (const int code = check_buffer(endpoint, data, bytes, descriptor, direction, registration);
      code != 0)
    return code;
  if (endpoint.is_busy(direction == FI_SEND ? demands.is_busy : demands.is_full)) return -FI_EAGAIN;
  return endpoint.domain->begin({.endpoint = &endpoint,
                                 .flags = FI_MSG | direction,
                                 .context = context,
                                 .registration = registration,
                                 .write = {}},
                                post);
}

ssize_t receive(fid_ep* object, void* out, std::size_t bytes, void* descriptor, fi_addr_t from,
                void* context) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  return post_message(endpoint, out, bytes, descriptor, FI_RECV, context, [&](Operation* begun) {
    return fi_recv(endpoint.below, out, bytes, nullptr, from, begun);
  });
}

ssize_t send(fid_ep* object, const void* data, std::size_t bytes, void* descriptor, fi_addr_t to,
             void* context) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  return post_message(endpoint, data, bytes, descriptor, FI_SEND, context, [&](Operation* begun) {
    return fi_send(endpoint.below, data, bytes, nullptr, to, begun);
  });
}

ssize_t send_data(fid_ep* object, const void* data, std::size_t bytes, void* descriptor,
                  std::uint64_t immediate, fi_addr_t to, void* context) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  if (endpoint.domain->demands().has_no_data) return -FI_EBADFLAGS;
  return post_message(endpoint, data, bytes, descriptor, FI_SEND, context, [&](Operation* begun) {
    return fi_senddata(endpoint.below, data, bytes, nullptr, immediate, to, begun);
  });
}

fi_ops_msg& message_calls() {
  static fi_ops_msg calls{.size = sizeof(fi_ops_msg),
                          .recv = receive,
                          .recvv = absent,
                          .recvmsg = absent,
                          .send = send,
                          .sendv = absent,
                          .sendmsg = absent,
                          .inject = absent,
                          .senddata = send_data,
                          .injectdata = absent};
  return calls;
}

}  // namespace

bool Endpoint::is_busy(bool can_be_busy) {
  if (!can_be_busy) return false;
  if (refusals_left > 0) {
    --refusals_left;
    return true;
  }
  if (random() % 8 != 0) return false;
  refusals_left = static_cast<int>(random() % 20);
  return true;
}

int check_buffer(const Endpoint& endpoint, const void* data, std::size_t bytes,
                 const void* descriptor, std::uint64_t access, std::uint64_t& registration) {
  if (!endpoint.domain->demands().is_local || bytes == 0) return 0;
  const Registration* found = endpoint.domain->find(descriptor);
  const auto* begin = static_cast<const std::byte*>(data);
  const char* wrong = nullptr;
  if (descriptor == nullptr)
    wrong = "has no descriptor";
  else if (found == nullptr)
    wrong = "has a descriptor of no registration that lives in its domain";
  else if (begin < found->data || begin + bytes > found->data + found->bytes)
    wrong = "is not within its registration";
  else if ((found->access & access) == 0)
    wrong = "has a registration without the access that it needs";
  else if (!found->is_enabled || (found->endpoint != nullptr && found->endpoint != &endpoint))
    wrong = "has a registration that is not enabled, or of another endpoint";
  if (wrong == nullptr) {
    registration = found->id;
    return 0;
  }
  const char* what = access == FI_RECV   ? "the buffer of a receive"
                     : access == FI_SEND ? "the buffer of a message"
                                         : "the source of a write";
  complain("%s, %zu bytes, %s", what, bytes, wrong);
  return -FI_EINVAL;
}

int open_endpoint(fid_domain* object, fi_info* info, fid_ep** out, void* context) {
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_endpoint,
                      .bind = bind_endpoint,
                      .control = control_endpoint,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  static fi_ops_ep endpoint_calls{.size = sizeof(fi_ops_ep),
                                  .cancel = absent,
                                  .getopt = get_option,
                                  .setopt = set_option,
                                  .tx_ctx = absent,
                                  .rx_ctx = absent,
                                  .rx_size_left = absent,
                                  .tx_size_left = absent};
  static fi_ops_cm cm_calls{.size = sizeof(fi_ops_cm),
                            .setname = absent,
                            .getname = get_name,
                            .getpeer = absent,
                            .connect = absent,
                            .listen = absent,
                            .accept = absent,
                            .reject = absent,
                            .shutdown = absent,
                            .join = absent};
  auto& domain = static_cast<Domain&>(*object);
  const std::lock_guard lock(domain.mutex);
  auto made = std::make_unique<Endpoint>(domain.demands());
  made->domain = &domain;
  made->write_flags = info->tx_attr->op_flags;
  fi_info* below = fi_dupinfo(domain.info_below);
  if (below == nullptr) return -FI_ENOMEM;
  below->tx_attr->size = info->tx_attr->size;
  below->rx_attr->size = info->rx_attr->size;
  below->tx_attr->op_flags = info->tx_attr->op_flags;
  const int code = fi_endpoint(domain.below, below, &made->below, nullptr);
  fi_freeinfo(below);
  if (code != 0) return code;
  made->fid = {.fclass = FI_CLASS_EP, .context = context, .ops = &calls};
  made->ops = &endpoint_calls;
  made->cm = &cm_calls;
  made->msg = &message_calls();
  made->rma = &write_calls();
  domain.endpoints.insert(made.get());
  *out = made.release();
  return 0;
}

}  // namespace unisono::test::fabric
