#include "transport/ofi/offers.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/try.h"
#include "transport/ofi/library.h"

namespace unisono::transport::ofi {
namespace {

// Hosts' memory, one thread at a time, no help from the caller but that it looks now and then.
void ask(fi_info& hints, std::size_t data_bytes) {
  hints.caps = FI_MSG | FI_RMA;
  hints.mode = FI_CONTEXT | FI_CONTEXT2;
  hints.ep_attr->type = FI_EP_RDM;
  hints.domain_attr->threading = FI_THREAD_DOMAIN;
  hints.domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
  // What this end can do; a provider takes away what it does not need.
  hints.domain_attr->mr_mode =
      FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_ENDPOINT;
  hints.domain_attr->cq_data_size = data_bytes;
}

}  // namespace

void FreeInfo::operator()(fi_info* info) const { (*library())->freeinfo(info); }

Result<Info> offers(const std::string& host, std::string_view provider, std::size_t data_bytes) {
  UNISONO_ASSIGN(const Library* loaded, library());
  const Info hints(loaded->dupinfo(nullptr));
  if (!hints) return environment_error("no memory for libfabric's hints");
  ask(*hints, data_bytes);
  // libfabric frees it with the hints.
  if (!provider.empty()) hints->fabric_attr->prov_name = strndup(provider.data(), provider.size());
  fi_info* found = nullptr;
  const int code = loaded->getinfo(std::min(loaded->version(), compiled_version),
                                   host.empty() ? nullptr : host.c_str(), nullptr,
                                   host.empty() ? 0 : FI_SOURCE, hints.get(), &found);
  if (code == -FI_ENODATA) return Info();
  if (code != 0) return fabric_error("libfabric lists no providers", code);
  return Info(found);
}

}  // namespace unisono::transport::ofi
