// Writes to peers' memory.

#include <cstring>

#include "fabric/endpoint.h"

namespace unisono::test::fabric {
namespace {

struct Posted {
  const void* source;
  std::size_t bytes;
  // Injected bytes need no descriptor.
  bool is_injected;
  void* descriptor;
};

// Where the provider beneath, which knows offsets alone, finds what a peer's virtual address names.
std::uint64_t address_below(const Demands& demands, std::uint64_t address, std::uint64_t key) {
  return demands.is_virtual ? address - (key & ((std::uint64_t{1} << 48) - 1)) : address;
}

ssize_t hold(Endpoint& endpoint, Write write, bool is_injected) {
  if (endpoint.wire.is_full(write.to)) return -FI_EAGAIN;
  const bool is_late = endpoint.domain->demands().is_late &&
                       (write.flags & FI_DELIVERY_COMPLETE) == 0 && write.reports;
  if (is_late || is_injected) {
    write.copy.assign(write.source, write.source + write.bytes);
    write.source = write.copy.data();
    write.registration = 0;
  }
  if (is_late) {
    fi_cq_data_entry entry{};
    entry.op_context = write.context;
    entry.flags = FI_RMA | FI_WRITE;
    endpoint.transmits->deliver(entry, 0);
    write.reports = false;
  }
  // A vector's bytes stay where they are when it is moved.
  endpoint.wire.hold(std::make_shared<Write>(std::move(write)));
  return 0;
}

ssize_t post_at_once(Endpoint& endpoint, const Write& write, bool is_injected) {
  if (!write.reports && is_injected)
    return (write.flags & FI_REMOTE_CQ_DATA) != 0
               ? fi_inject_writedata(endpoint.below, write.source, write.bytes, write.data,
                                     write.to, write.address, write.key)
               : fi_inject_write(endpoint.below, write.source, write.bytes, write.to, write.address,
                                 write.key);
  const iovec from{.iov_base = const_cast<std::byte*>(write.source), .iov_len = write.bytes};
  const fi_rma_iov to{.addr = write.address, .len = write.bytes, .key = write.key};
  return endpoint.domain->begin({.endpoint = &endpoint,
                                 .flags = FI_RMA | FI_WRITE,
                                 .context = write.context,
                                 .registration = write.registration,
                                 .write = {}},
                                [&](Operation* begun) {
                                  const fi_msg_rma message{.msg_iov = &from,
                                                           .desc = nullptr,
                                                           .iov_count = 1,
                                                           .addr = write.to,
                                                           .rma_iov = &to,
                                                           .rma_iov_count = 1,
                                                           .context = begun,
                                                           .data = write.data};
                                  return fi_writemsg(endpoint.below, &message,
                                                     write.flags | FI_COMPLETION);
                                });
}

ssize_t post(Endpoint& endpoint, const Posted& posted, Write write) {
  Domain& domain = *endpoint.domain;
  const Demands& demands = domain.demands();
  const std::lock_guard lock(domain.mutex);
  if (!endpoint.is_enabled) return -FI_EOPBADSTATE;
  if (demands.most_write_bytes > 0 && posted.bytes > demands.most_write_bytes) {
    complain("a write has %zu bytes; it may have %zu", posted.bytes, demands.most_write_bytes);
    return -FI_EMSGSIZE;
  }
  if (posted.is_injected && posted.bytes > domain.info_below->tx_attr->inject_size)
    return -FI_EINVAL;
  if (!posted.is_injected)
    if (const int code = check_buffer(endpoint, posted.source, posted.bytes, posted.descriptor,
                                      FI_WRITE, write.registration);
        code != 0)
      return code;
  if ((write.flags & FI_REMOTE_CQ_DATA) != 0) {
    if (demands.has_no_data) return -FI_EBADFLAGS;
    if (demands.loses_data) write.flags &= ~FI_REMOTE_CQ_DATA;
  }
  if (endpoint.is_busy(demands.is_busy)) return -FI_EAGAIN;
  write.source = static_cast<const std::byte*>(posted.source);
  write.bytes = posted.bytes;
  write.address = address_below(demands, write.address, write.key);
  return demands.holds_writes() ? hold(endpoint, std::move(write), posted.is_injected)
                                : post_at_once(endpoint, write, posted.is_injected);
}

ssize_t write_plain(fid_ep* object, const void* source, std::size_t bytes, void* descriptor,
                    fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  Write write{.to = to, .address = address, .key = key, .context = context};
  write.flags = endpoint.write_flags & ~FI_INJECT;
  return post(endpoint, {source, bytes, false, descriptor}, std::move(write));
}

ssize_t write_data(fid_ep* object, const void* source, std::size_t bytes, void* descriptor,
                   std::uint64_t data, fi_addr_t to, std::uint64_t address, std::uint64_t key,
                   void* context) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  if (endpoint.domain->demands().refuses_data) return -FI_ENOSYS;
  Write write{.to = to, .address = address, .key = key, .data = data, .context = context};
  write.flags = (endpoint.write_flags & ~FI_INJECT) | FI_REMOTE_CQ_DATA;
  return post(endpoint, {source, bytes, false, descriptor}, std::move(write));
}

ssize_t inject_write(fid_ep* object, const void* source, std::size_t bytes, fi_addr_t to,
                     std::uint64_t address, std::uint64_t key) {
  Write write{.to = to, .address = address, .key = key, .reports = false};
  return post(static_cast<Endpoint&>(*object), {source, bytes, true, nullptr}, std::move(write));
}

ssize_t inject_write_data(fid_ep* object, const void* source, std::size_t bytes, std::uint64_t data,
                          fi_addr_t to, std::uint64_t address, std::uint64_t key) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  if (endpoint.domain->demands().refuses_data) return -FI_ENOSYS;
  Write write{.to = to, .address = address, .key = key, .data = data, .reports = false};
  write.flags = FI_REMOTE_CQ_DATA;
  return post(endpoint, {source, bytes, true, nullptr}, std::move(write));
}

ssize_t write_message(fid_ep* object, const fi_msg_rma* message, std::uint64_t flags) {
  auto& endpoint = static_cast<Endpoint&>(*object);
  const Demands& demands = endpoint.domain->demands();
  if (message->iov_count != 1 || message->rma_iov_count != 1) return -FI_ENOSYS;
  if (message->msg_iov->iov_len != message->rma_iov->len) return -FI_EINVAL;
  if ((flags & FI_REMOTE_CQ_DATA) != 0 && (demands.refuses_data || demands.refuses_message_data))
    return -FI_EBADFLAGS;
  Write write{.to = message->addr,
              .address = message->rma_iov->addr,
              .key = message->rma_iov->key,
              .data = message->data,
              .flags = flags,
              .context = message->context};
  return post(endpoint,
              {message->msg_iov->iov_base, message->msg_iov->iov_len, (flags & FI_INJECT) != 0,
               message->desc == nullptr ? nullptr : message->desc[0]},
              std::move(write));
}

}  // namespace

fi_ops_rma& write_calls() {
  static fi_ops_rma calls{.size = sizeof(fi_ops_rma),
                          .read = absent,
                          .readv = absent,
                          .readmsg = absent,
                          .write = write_plain,
                          .writev = absent,
                          .writemsg = write_message,
                          .inject = inject_write,
                          .writedata = write_data,
                          .injectdata = inject_write_data};
  return calls;
}

}  // namespace unisono::test::fabric
