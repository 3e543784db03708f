// Registrations: keys, bindings, and what descriptors stand for.

#include "fabric/objects.h"

namespace unisono::test::fabric {
namespace {

constexpr std::uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;
// A key that this provider chooses tells where the memory begins, so that the sender can make an
// offset of an address; a count is above it.
constexpr int address_bits = 48;

int close_registration(fid* object) {
  auto& registration = object_of<Registration, fid_mr>(object);
  Domain& domain = *registration.domain;
  const std::lock_guard lock(domain.mutex);
  if (const int code = close_below(registration.below); code != 0) return code;
  if (registration.endpoint != nullptr) --registration.endpoint->registrations;
  domain.registrations.erase(registration.id);
  const auto owned = domain.keys.find(registration.asked_key);
  if (owned != domain.keys.end() && owned->second == &registration) domain.keys.erase(owned);
  delete &registration;
  return 0;
}

// Makes it usable; the mutex is held.
int enable(Registration& registration) {
  Domain& domain = *registration.domain;
  if ((registration.access & remote_access) != 0) {
    const int code = fi_mr_reg(domain.below, registration.data, registration.bytes,
                               registration.access & remote_access, 0, registration.asked_key, 0,
                               &registration.below, nullptr);
    if (code != 0) return code;
  }
  registration.key = registration.asked_key;
  registration.is_enabled = true;
  return 0;
}

int bind_registration(fid* object, fid* to, std::uint64_t) {
  auto& registration = object_of<Registration, fid_mr>(object);
  Domain& domain = *registration.domain;
  if (!domain.demands().is_endpoint || to->fclass != FI_CLASS_EP) return -FI_ENOSYS;
  auto& endpoint = object_of<Endpoint, fid_ep>(to);
  const std::lock_guard lock(domain.mutex);
  if (endpoint.domain != &domain || registration.endpoint != nullptr) {
    complain("a registration is bound to an endpoint of another domain, or twice");
    return -FI_EINVAL;
  }
  registration.endpoint = &endpoint;
  ++endpoint.registrations;
  return 0;
}

int control_registration(fid* object, int command, void*) {
  auto& registration = object_of<Registration, fid_mr>(object);
  Domain& domain = *registration.domain;
  if (!domain.demands().is_endpoint || command != FI_ENABLE) return -FI_ENOSYS;
  const std::lock_guard lock(domain.mutex);
  if (registration.is_enabled || registration.endpoint == nullptr ||
      !registration.endpoint->is_enabled) {
    complain("a registration is enabled twice, or without an enabled endpoint that it is bound to");
    return -FI_EINVAL;
  }
  return enable(registration);
}

int choose_key(Domain& domain, const void* data, std::uint64_t requested, std::uint64_t& out) {
  const Demands& demands = domain.demands();
  out = requested;
  if (demands.is_virtual) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    for (std::uint64_t count = 0; count < std::uint64_t{1} << (64 - address_bits); ++count) {
      out = begin | count << address_bits;
      if (out != FI_KEY_NOTAVAIL && !domain.keys.contains(out)) return 0;
    }
    return -FI_ENOSPC;
  }
  if (demands.key_bytes < sizeof requested && requested >> (8 * demands.key_bytes) != 0) {
    complain("a key has more than %zu bytes", demands.key_bytes);
    return -FI_EKEYREJECTED;
  }
  if (domain.keys.contains(requested)) {
    complain("a key is used by another registration");
    return -FI_ENOKEY;
  }
  return 0;
}

int register_attributes(fid* object, const fi_mr_attr* attributes, std::uint64_t flags,
                        fid_mr** out) {
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_registration,
                      .bind = bind_registration,
                      .control = control_registration,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  auto& domain = object_of<Domain, fid_domain>(object);
  if (attributes->iov_count != 1 || attributes->iface != FI_HMEM_SYSTEM || flags != 0)
    return -FI_ENOSYS;
  if (attributes->access == 0 || attributes->offset != 0) return -FI_EINVAL;
  const std::lock_guard lock(domain.mutex);
  auto made = std::make_unique<Registration>();
  made->domain = &domain;
  made->id = ++domain.last_id;
  made->data = static_cast<const std::byte*>(attributes->mr_iov->iov_base);
  made->bytes = attributes->mr_iov->iov_len;
  made->access = attributes->access;
  if (const int code = choose_key(domain, made->data, attributes->requested_key, made->asked_key);
      code != 0)
    return code;
  made->fid = {.fclass = FI_CLASS_MR, .context = attributes->context, .ops = &calls};
  made->mem_desc = made.get();
  made->key = domain.demands().is_virtual ? FI_KEY_NOTAVAIL : made->asked_key;
  if (!domain.demands().is_endpoint)
    if (const int code = enable(*made); code != 0) return code;
  domain.registrations.emplace(made->id, made.get());
  domain.keys.emplace(made->asked_key, made.get());
  *out = made.release();
  return 0;
}

int register_memory(fid* domain, const void* data, std::size_t bytes, std::uint64_t access,
                    std::uint64_t offset, std::uint64_t requested_key, std::uint64_t flags,
                    fid_mr** out, void* context) {
  const iovec memory{.iov_base = const_cast<void*>(data), .iov_len = bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &memory;
  attributes.iov_count = 1;
  attributes.access = access;
  attributes.offset = offset;
  attributes.requested_key = requested_key;
  attributes.context = context;
  return register_attributes(domain, &attributes, flags, out);
}

}  // namespace

fi_ops_mr& registration_calls() {
  static fi_ops_mr calls{.size = sizeof(fi_ops_mr),
                         .reg = register_memory,
                         .regv = absent,
                         .regattr = register_attributes};
  return calls;
}

}  // namespace unisono::test::fabric
