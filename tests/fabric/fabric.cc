// Fabrics and domains.

#include <chrono>
#include <cstring>
#include <string>

#include "fabric/objects.h"

namespace unisono::test::fabric {
namespace {

// How long a held write waits where nobody looks. No test depends on it.
constexpr std::chrono::microseconds card_looks_every{200};

int close_fabric(fid* object) {
  auto& fabric = object_of<Fabric, fid_fabric>(object);
  if (fabric.domains > 0) {
    complain("a fabric is closed before its %d domains", fabric.domains);
    return -FI_EBUSY;
  }
  if (const int code = close_below(fabric.below); code != 0) return code;
  delete &fabric;
  return 0;
}

// Tells the caller to look, where this provider holds what the one beneath no longer has.
int trywait(fid_fabric* fabric, fid** objects, int count) {
  for (int i = 0; i < count; ++i) {
    if (objects[i]->fclass != FI_CLASS_CQ) return -FI_ENOSYS;
    auto& queue = object_of<Queue, fid_cq>(objects[i]);
    const std::lock_guard lock(queue.domain->mutex);
    if (!queue.items.empty()) return -FI_EAGAIN;
    fid* below = &queue.below->fid;
    if (const int code = fi_trywait(static_cast<Fabric&>(*fabric).below, &below, 1); code != 0)
      return code;
  }
  return 0;
}

int close_domain(fid* object) {
  auto& domain = object_of<Domain, fid_domain>(object);
  {
    const std::lock_guard lock(domain.mutex);
    if (!domain.registrations.empty() || !domain.queues.empty() || !domain.endpoints.empty()) {
      complain("a domain is closed before its %zu registrations, %zu queues and %zu endpoints",
               domain.registrations.size(), domain.queues.size(), domain.endpoints.size());
      return -FI_EBUSY;
    }
    domain.is_ending = true;
  }
  domain.ends.notify_all();
  if (domain.card.joinable()) domain.card.join();
  if (const int code = close_below(domain.below); code != 0) return code;
  for (Operation* operation : domain.operations) delete operation;
  --domain.fabric->domains;
  fi_freeinfo(domain.info_below);
  delete &domain;
  return 0;
}

int close_addresses(fid* object) {
  auto& addresses = object_of<Addresses, fid_av>(object);
  const std::lock_guard lock(addresses.domain->mutex);
  if (const int code = close_below(addresses.below); code != 0) return code;
  delete &addresses;
  return 0;
}

int insert(fid_av* object, const void* names, std::size_t count, fi_addr_t* out,
           std::uint64_t flags, void* context) {
  auto& addresses = static_cast<Addresses&>(*object);
  const std::lock_guard lock(addresses.domain->mutex);
  return fi_av_insert(addresses.below, names, count, out, flags, context);
}

void run_card(Domain& domain) {
  std::unique_lock lock(domain.mutex);
  while (!domain.ends.wait_for(lock, card_looks_every, [&] { return domain.is_ending; })) {
    for (Endpoint* endpoint : domain.endpoints)
      if (endpoint->is_enabled) endpoint->wire.pump(*endpoint);
    for (Queue* queue : domain.queues) queue->drain();
  }
}

}  // namespace

int open_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context) {
  const auto demands = parse(attributes->prov_name);
  if (!demands) return -FI_ENODEV;
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_fabric,
                      .bind = absent,
                      .control = absent,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  static fi_ops_fabric fabric_calls{.size = sizeof(fi_ops_fabric),
                                    .domain = open_domain,
                                    .passive_ep = absent,
                                    .eq_open = absent,
                                    .wait_open = absent,
                                    .trywait = trywait,
                                    .domain2 = absent};
  auto made = std::make_unique<Fabric>();
  made->demands = *demands;
  std::string name("tcp;ofi_rxm");
  fi_fabric_attr below = *attributes;
  below.prov_name = name.data();
  if (const int code = fi_fabric(&below, &made->below, nullptr); code != 0) return code;
  made->fid = {.fclass = FI_CLASS_FABRIC, .context = context, .ops = &calls};
  made->ops = &fabric_calls;
  *out = made.release();
  return 0;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** out, void* context) {
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_domain,
                      .bind = absent,
                      .control = absent,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  static fi_ops_domain domain_calls{.size = sizeof(fi_ops_domain),
                                    .av_open = open_addresses,
                                    .cq_open = open_queue,
                                    .endpoint = open_endpoint,
                                    .scalable_ep = absent,
                                    .cntr_open = absent,
                                    .poll_open = absent,
                                    .stx_ctx = absent,
                                    .srx_ctx = absent,
                                    .query_atomic = absent,
                                    .query_collective = absent,
                                    .endpoint2 = absent};
  auto made = std::make_unique<Domain>();
  made->fabric = static_cast<Fabric*>(fabric);
  if ((info->domain_attr->mr_mode & made->demands().mr_mode()) != made->demands().mr_mode()) {
    complain("a domain is opened without the registration modes of its offer");
    return -FI_EINVAL;
  }
  if (const int code = info_below(fabric->api_version, *info, &made->info_below); code != 0)
    return code;
  if (const int code = fi_domain(made->fabric->below, made->info_below, &made->below, nullptr);
      code != 0) {
    fi_freeinfo(made->info_below);
    return code;
  }
  ++made->fabric->domains;
  made->fid = {.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &calls};
  made->ops = &domain_calls;
  made->mr = &registration_calls();
  if (made->demands().holds_writes())
    made->card = std::thread([domain = made.get()] { run_card(*domain); });
  *out = made.release();
  return 0;
}

int open_addresses(fid_domain* object, fi_av_attr* attributes, fid_av** out, void* context) {
  static fi_ops calls{.size = sizeof(fi_ops),
                      .close = close_addresses,
                      .bind = absent,
                      .control = absent,
                      .ops_open = absent,
                      .tostr = absent,
                      .ops_set = absent};
  static fi_ops_av address_calls{.size = sizeof(fi_ops_av),
                                 .insert = insert,
                                 .insertsvc = absent,
                                 .insertsym = absent,
                                 .remove = absent,
                                 .lookup = absent,
                                 .straddr = absent,
                                 .av_set = absent};
  auto made = std::make_unique<Addresses>();
  made->domain = &static_cast<Domain&>(*object);
  const std::lock_guard lock(made->domain->mutex);
  if (const int code = fi_av_open(made->domain->below, attributes, &made->below, nullptr);
      code != 0)
    return code;
  made->fid = {.fclass = FI_CLASS_AV, .context = context, .ops = &calls};
  made->ops = &address_calls;
  *out = made.release();
  return 0;
}

Registration* Domain::find(const void* descriptor) const {
  for (const auto& [id, registration] : registrations)
    if (registration == descriptor) return registration;
  return nullptr;
}

void Domain::drop(Operation* operation) {
  operations.erase(operation);
  delete operation;
}

}  // namespace unisono::test::fabric
