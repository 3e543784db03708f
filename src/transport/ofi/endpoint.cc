#include "transport/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cstring>

#include "base/error.h"
#include "base/key.h"
#include "base/try.h"
#include "transport/ofi/kept_signals.h"
#include "transport/ofi/library.h"

namespace unisono::transport::ofi {
namespace {

// An immediate is one word of 32 bits.
constexpr std::size_t immediate_bytes = sizeof(std::uint32_t);
constexpr std::size_t most_name_bytes = 128;
// Of what is in order, so much at once must be.
constexpr std::size_t least_ordered_bytes = std::size_t{1} << 30;

Result<Posted> posted(std::string_view what, ssize_t code) {
  if (code == 0) return Posted::yes;
  if (code == -FI_EAGAIN) return Posted::later;
  return fabric_error(what, code);
}

fi_msg_rma describe(const Write& write, iovec& from, fi_rma_iov& to, void* context) {
  from = {.iov_base = const_cast<std::byte*>(write.source), .iov_len = write.bytes};
  to = {.addr = write.address, .len = write.bytes, .key = write.key};
  return {.msg_iov = &from,
          .desc = nullptr,
          .iov_count = 1,
          .addr = write.to,
          .rma_iov = &to,
          .rma_iov_count = 1,
          .context = context,
          .data = write.immediate};
}

// Hosts' memory, one thread at a time, no help from the caller but that it looks now and then.
void ask(fi_info& hints) {
  hints.caps = FI_MSG | FI_RMA;
  hints.mode = FI_CONTEXT | FI_CONTEXT2;
  hints.ep_attr->type = FI_EP_RDM;
  hints.domain_attr->threading = FI_THREAD_DOMAIN;
  hints.domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints.domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints.domain_attr->cq_data_size = immediate_bytes;
}

}  // namespace

void Endpoint::FreeInfo::operator()(fi_info* info) const { (*library())->freeinfo(info); }

Endpoint::~Endpoint() = default;

Result<std::unique_ptr<Endpoint>> Endpoint::open(const std::string& host,
                                                 std::string_view provider) {
  const KeptSignals kept;
  std::unique_ptr<Endpoint> made(new Endpoint());
  UNISONO_TRY(made->choose(host, provider));
  UNISONO_TRY(made->make());
  return made;
}

Status Endpoint::choose(const std::string& host, std::string_view provider) {
  UNISONO_ASSIGN(const Library* loaded, library());
  const std::unique_ptr<fi_info, FreeInfo> hints(loaded->dupinfo(nullptr));
  if (!hints) return environment_error("no memory for libfabric's hints");
  ask(*hints);
  // libfabric frees it with the hints.
  if (!provider.empty()) hints->fabric_attr->prov_name = strndup(provider.data(), provider.size());
  fi_info* found = nullptr;
  const int code = loaded->getinfo(library_version, host.empty() ? nullptr : host.c_str(), nullptr,
                                   host.empty() ? 0 : FI_SOURCE, hints.get(), &found);
  if (code != 0)
    return fabric_error(str("libfabric has no provider ", provider.empty() ? "" : "'", provider,
                            provider.empty() ? "" : "' ",
                            "with reliable datagrams, remote writes and 32 bits that arrive with "
                            "them, at ",
                            host.empty() ? "any address" : host,
                            " (`fi_info` lists what there is, FI_PROVIDER chooses)"),
                        code);
  const std::unique_ptr<fi_info, FreeInfo> all(found);
  info_.reset(loaded->dupinfo(all.get()));
  if (!info_) return environment_error("no memory for what libfabric found");
  constexpr std::uint64_t writes_in_order = FI_ORDER_WAW | FI_ORDER_RMA_WAW;
  is_ordered_ = (info_->tx_attr->msg_order & writes_in_order) != 0 &&
                info_->ep_attr->max_order_waw_size >= least_ordered_bytes;
  most_injected_bytes_ = info_->tx_attr->inject_size;
  return {};
}

Status Endpoint::make() {
  const auto made = [](std::string_view what, int code) -> Status {
    if (code != 0) return fabric_error(str("libfabric cannot make ", what), code);
    return {};
  };
  fid_fabric* fabric = nullptr;
  UNISONO_TRY(made("a fabric", (*library())->fabric(info_->fabric_attr, &fabric, nullptr)));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  UNISONO_TRY(made("a domain", fi_domain(fabric, info_.get(), &domain, nullptr)));
  domain_.reset(domain);

  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_UNSPEC;
  fid_av* addresses = nullptr;
  UNISONO_TRY(made("an address vector", fi_av_open(domain, &av_attributes, &addresses, nullptr)));
  addresses_.reset(addresses);

  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_DATA;
  cq_attributes.wait_obj = FI_WAIT_FD;
  fid_cq* completions = nullptr;
  if (fi_cq_open(domain, &cq_attributes, &completions, nullptr) != 0) {
    cq_attributes.wait_obj = FI_WAIT_NONE;
    UNISONO_TRY(
        made("a completion queue", fi_cq_open(domain, &cq_attributes, &completions, nullptr)));
  } else if (fi_control(&completions->fid, FI_GETWAIT, &descriptor_) != 0) {
    descriptor_ = -1;
  }
  completions_.reset(completions);

  fid_ep* endpoint = nullptr;
  UNISONO_TRY(made("an endpoint", fi_endpoint(domain, info_.get(), &endpoint, nullptr)));
  endpoint_.reset(endpoint);
  UNISONO_TRY(made("an endpoint with addresses", fi_ep_bind(endpoint, &addresses->fid, 0)));
  UNISONO_TRY(made("an endpoint with completions",
                   fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV)));
  UNISONO_TRY(made("a working endpoint", fi_enable(endpoint)));

  std::array<char, most_name_bytes> name{};
  std::size_t bytes = name.size();
  UNISONO_TRY(made("an address", fi_getname(&endpoint->fid, name.data(), &bytes)));
  name_.assign(name.data(), bytes);
  return {};
}

std::string_view Endpoint::provider() const { return info_->fabric_attr->prov_name; }

std::size_t Endpoint::most_write_bytes() const { return info_->ep_attr->max_msg_size; }

bool Endpoint::arm() {
  fid* queue = &completions_->fid;
  return descriptor_ >= 0 && fi_trywait(fabric_.get(), &queue, 1) == FI_SUCCESS;
}

Result<fi_addr_t> Endpoint::insert(std::string_view name) {
  // IP addresses of another family, too, have another length.
  if (name.size() != name_.size() && info_->addr_format != FI_ADDR_STR)
    return environment_error("it has ", name.size(), " bytes; an address of ", provider(), " has ",
                             name_.size());
  // Its bytes may lie anywhere.
  std::array<std::byte, most_name_bytes> aligned{};
  if (name.size() >= aligned.size())
    return environment_error("it has ", name.size(), " bytes; it may have ", aligned.size() - 1);
  std::memcpy(aligned.data(), name.data(), name.size());
  fi_addr_t out = FI_ADDR_UNSPEC;
  const int count = fi_av_insert(addresses_.get(), aligned.data(), 1, &out, 0, nullptr);
  if (count != 1) return fabric_error("libfabric refuses it", count < 0 ? count : FI_EINVAL);
  return out;
}

Result<RegisteredMemory> Endpoint::share(std::byte* data, std::size_t bytes) {
  UNISONO_ASSIGN(const Key random, fresh_key());
  std::uint64_t wanted_key = 0;
  std::memcpy(&wanted_key, random.data(), sizeof wanted_key);
  fid_mr* registration = nullptr;
  const int code = fi_mr_reg(domain_.get(), data, bytes, FI_REMOTE_WRITE, 0, wanted_key, 0,
                             &registration, nullptr);
  if (code != 0)
    return fabric_error(str("libfabric cannot register ", bytes, " bytes for peers"), code);
  const bool is_by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  return RegisteredMemory{.registration = Owned<fid_mr>(registration),
                          .key = fi_mr_key(registration),
                          .address = is_by_address ? reinterpret_cast<std::uintptr_t>(data) : 0};
}

Result<Posted> Endpoint::write(const Write& write, void* context) {
  iovec from;
  fi_rma_iov to;
  const fi_msg_rma message = describe(write, from, to, context);
  // Where nothing else orders them, a write that is complete must have arrived.
  const std::uint64_t flags = FI_COMPLETION | (tells_apart(write.bytes) ? 0 : FI_REMOTE_CQ_DATA) |
                              (is_ordered_ ? 0 : FI_DELIVERY_COMPLETE);
  return posted("libfabric cannot write", fi_writemsg(endpoint_.get(), &message, flags));
}

Result<Posted> Endpoint::inject(const Write& write) {
  return posted("libfabric cannot write",
                fi_inject_writedata(endpoint_.get(), write.source, write.bytes, write.immediate,
                                    write.to, write.address, write.key));
}

Result<Posted> Endpoint::send(std::span<const std::byte> message, fi_addr_t to, void* context) {
  return posted("libfabric cannot send",
                fi_send(endpoint_.get(), message.data(), message.size(), nullptr, to, context));
}

Result<Posted> Endpoint::receive(std::span<std::byte> buffer, void* context) {
  return posted("libfabric cannot receive", fi_recv(endpoint_.get(), buffer.data(), buffer.size(),
                                                    nullptr, FI_ADDR_UNSPEC, context));
}

long Endpoint::read(std::span<fi_cq_data_entry> completions) {
  return fi_cq_read(completions_.get(), completions.data(), completions.size());
}

fi_cq_err_entry Endpoint::read_error() {
  fi_cq_err_entry entry{};
  fi_cq_readerr(completions_.get(), &entry, 0);
  return entry;
}

}  // namespace unisono::transport::ofi
