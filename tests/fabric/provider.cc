// The provider's entry and its offers.

#include <rdma/providers/fi_prov.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "fabric/objects.h"

namespace unisono::test::fabric {
namespace {

constexpr const char* provider_below = "tcp;ofi_rxm";
constexpr std::uint64_t writes_in_order = FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW;

void name_provider(fi_info& info, const char* name) {
  free(info.fabric_attr->prov_name);
  info.fabric_attr->prov_name = strdup(name);
}

// Whether this provider meets what the caller asks for.
bool fits(const Demands& demands, const fi_info& hints) {
  const fi_domain_attr& domain = *hints.domain_attr;
  const int needs = demands.mr_mode();
  if ((domain.mr_mode & needs) != needs) return false;
  if (demands.has_no_data && domain.cq_data_size > 0) return false;
  if (demands.most_write_bytes > 0 && hints.ep_attr->max_msg_size > demands.most_write_bytes)
    return false;
  if (demands.holds_writes() && (hints.tx_attr->msg_order & FI_ORDER_SAW) != 0) return false;
  return !demands.is_unordered || (hints.tx_attr->msg_order & writes_in_order) == 0;
}

// Of what lies beneath, what is left of it here.
void limit(const Demands& demands, const fi_info& hints, fi_info& info) {
  fi_domain_attr& domain = *info.domain_attr;
  domain.mr_mode = demands.mr_mode();
  domain.mr_key_size = demands.key_bytes;
  if (hints.domain_attr->threading != FI_THREAD_UNSPEC)
    domain.threading = hints.domain_attr->threading;
  if (demands.has_no_data) domain.cq_data_size = 0;
  if (demands.most_write_bytes > 0) info.ep_attr->max_msg_size = demands.most_write_bytes;
  info.tx_attr->inject_size = std::min(info.tx_attr->inject_size, info.ep_attr->max_msg_size);
  if (!demands.holds_writes()) return;
  // Messages overtake what is held.
  info.tx_attr->msg_order &= ~FI_ORDER_SAW;
  info.rx_attr->msg_order &= ~FI_ORDER_SAW;
  if (!demands.is_unordered) return;
  info.tx_attr->msg_order &= ~writes_in_order;
  info.rx_attr->msg_order &= ~writes_in_order;
  info.ep_attr->max_order_waw_size = 0;
}

bool is_whole(const fi_info* hints) {
  return hints != nullptr && hints->fabric_attr != nullptr &&
         hints->fabric_attr->prov_name != nullptr && hints->domain_attr != nullptr &&
         hints->ep_attr != nullptr && hints->tx_attr != nullptr && hints->rx_attr != nullptr;
}

// libfabric puts this provider's name behind what it finds in prov_name.
int getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
            const fi_info* hints, fi_info** out) {
  if (!is_whole(hints)) return -FI_ENODATA;
  const auto demands = parse(hints->fabric_attr->prov_name);
  if (!demands || !fits(*demands, *hints)) return -FI_ENODATA;
  fi_info* asked = fi_dupinfo(hints);
  if (asked == nullptr) return -FI_ENOMEM;
  const std::string name(hints->fabric_attr->prov_name);
  name_provider(*asked, provider_below);
  asked->domain_attr->mr_mode = 0;
  asked->domain_attr->mr_key_size = 0;
  // The card's thread calls it, too.
  asked->domain_attr->threading = FI_THREAD_SAFE;
  const int code = fi_getinfo(version, node, service, flags, asked, out);
  fi_freeinfo(asked);
  if (code != 0) return code;
  for (fi_info* info = *out; info != nullptr; info = info->next) {
    limit(*demands, *hints, *info);
    name_provider(*info, name.substr(0, name.find(';')).c_str());
  }
  return 0;
}

}  // namespace

void complain(const char* format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  std::fprintf(stderr, "%s: %s\n", provider_name, text);
}

int info_below(std::uint32_t version, const fi_info& offer, fi_info** out) {
  fi_info* asked = fi_dupinfo(&offer);
  if (asked == nullptr) return -FI_ENOMEM;
  name_provider(*asked, provider_below);
  asked->domain_attr->mr_mode = 0;
  asked->domain_attr->mr_key_size = 0;
  asked->domain_attr->threading = FI_THREAD_SAFE;
  const int code = fi_getinfo(version, nullptr, nullptr, 0, asked, out);
  fi_freeinfo(asked);
  return code;
}

}  // namespace unisono::test::fabric

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  using namespace unisono::test::fabric;
  static fi_provider provider = [] {
    fi_provider made{};
    made.version = FI_VERSION(1, 0);
    made.fi_version = fi_version();
    made.name = provider_name;
    made.getinfo = getinfo;
    made.fabric = open_fabric;
    made.cleanup = [] {};
    return made;
  }();
  return &provider;
}
