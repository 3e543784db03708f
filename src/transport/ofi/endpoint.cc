#include "transport/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/key.h"
#include "base/log.h"
#include "base/try.h"
#include "transport/ofi/kept_signals.h"
#include "transport/ofi/library.h"
#include "transport/ofi/message.h"
#include "transport/ofi/providers.h"

namespace unisono::transport::ofi {
namespace {

constexpr std::size_t most_name_bytes = 128;
// For what comes between two looks, where a provider lets the program say how much that is.
constexpr std::size_t most_completions = 8192;
constexpr std::size_t least_completions = 128;
// A closing endpoint reads completions so often that no one waits for.
constexpr int most_last_reads = 1024;
// A key that is taken is drawn again.
constexpr int most_draws = 16;

Result<Posted> posted(std::string_view what, ssize_t code) {
  if (code == 0) return Posted::yes;
  if (code == -FI_EAGAIN) return Posted::later;
  return fabric_error(what, code);
}

std::string joined(const std::map<std::string, std::string, std::less<>>& reasons) {
  std::string out;
  for (const auto& [name, reason] : reasons) out += reason;
  return out;
}

Status made(std::string_view what, int code) {
  if (code != 0) return fabric_error(str("libfabric cannot make ", what), code);
  return {};
}

}  // namespace

// Completions are not read without need: over tcp, libfabric 1.17 then begins to accept peers that
// are still connecting, and does not free them. It ends the process where those of an endpoint are
// read that could not be enabled, and thus got no name.
Endpoint::~Endpoint() {
  const bool is_read = !name_.empty() && provider_of(provider()).reads_when_closed;
  std::array<fi_cq_data_entry, 32> entries;
  for (int reads = 0; is_read && reads < most_last_reads; ++reads) {
    const long count = read(entries);
    if (count == -FI_EAVAIL)
      read_error();
    else if (count <= 0)
      break;
  }
  // Bound memory keeps its endpoint open; elsewhere the receives still name this memory.
  if (info_ && has_mode(FI_MR_ENDPOINT)) kept_.clear();
}

Result<std::unique_ptr<Endpoint>> Endpoint::open(const std::string& host,
                                                 std::string_view provider) {
  const KeptSignals kept;
  UNISONO_ASSIGN(const Library* loaded, library());
  // By name, why they are not used, and those of which no other offer is tried.
  std::map<std::string, std::string, std::less<>> reasons;
  std::set<std::string, std::less<>> refused;
  // Those without completion data are the last choice.
  for (const std::size_t data_bytes : {immediate_bytes, std::size_t{0}}) {
    UNISONO_ASSIGN(const Info all, offers(host, provider, data_bytes));
    for (const fi_info* offer = all.get(); offer != nullptr; offer = offer->next) {
      if (data_bytes == 0 && offer->domain_attr->cq_data_size >= immediate_bytes) continue;
      const std::string name = offer->fabric_attr->prov_name;
      if (refused.contains(name)) continue;
      if (const auto why = refusal(provider_of(name), loaded->version()); !why.empty()) {
        refused.insert(name);
        reasons.emplace(name, str("; ", name, " is refused: ", why));
        continue;
      }
      auto made = open(*offer);
      if (made.ok()) {
        log(LogLevel::info, "libfabric's ", name, " is used; it tells of writes by ",
            describe((*made)->signalling()), joined(reasons));
        return made;
      }
      // Another card of it may do.
      reasons.emplace(name, str("; ", name, " cannot be used: ", made.error().message));
    }
  }
  return environment_error("libfabric has no provider ", provider.empty() ? "" : "'", provider,
                           provider.empty() ? "" : "' ",
                           "with reliable datagrams and remote writes that it can tell of, at ",
                           host.empty() ? "any address" : host,
                           " (`fi_info` lists what there is, FI_PROVIDER chooses)",
                           joined(reasons));
}

// Whether an offer can be used is tried with an endpoint of its own, of which nothing stays.
Result<std::unique_ptr<Endpoint>> Endpoint::open(const fi_info& offer) {
  UNISONO_ASSIGN(auto trial, make(offer));
  UNISONO_ASSIGN(const Signalling way, try_signalling(std::move(trial)));
  UNISONO_ASSIGN(auto made, make(offer));
  made->signalling_ = way;
  if (way == Signalling::ring) made->descriptor_ = -1;
  return made;
}

Result<std::unique_ptr<Endpoint>> Endpoint::make(const fi_info& offer) {
  std::unique_ptr<Endpoint> made(new Endpoint());
  made->info_.reset((*library())->dupinfo(&offer));
  if (!made->info_) return environment_error("no memory for what libfabric found");
  const fi_info& info = *made->info_;
  constexpr std::uint64_t writes_in_order = FI_ORDER_WAW | FI_ORDER_RMA_WAW;
  made->is_ordered_ =
      (info.tx_attr->msg_order & writes_in_order) != 0 &&
      info.ep_attr->max_order_waw_size >= std::min(piece_bytes, made->most_write_bytes());
  made->most_injected_bytes_ = info.tx_attr->inject_size;
  UNISONO_TRY(made->make_objects());
  return made;
}

Status Endpoint::make_objects() {
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

  UNISONO_TRY(make_completions());

  fid_ep* endpoint = nullptr;
  UNISONO_TRY(made("an endpoint", fi_endpoint(domain, info_.get(), &endpoint, nullptr)));
  endpoint_.reset(endpoint);
  UNISONO_TRY(made("an endpoint with addresses", fi_ep_bind(endpoint, &addresses->fid, 0)));
  UNISONO_TRY(made("an endpoint with completions",
                   fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_RECV)));
  UNISONO_TRY(made("a working endpoint", fi_enable(endpoint)));

  std::array<char, most_name_bytes> name{};
  std::size_t bytes = name.size();
  UNISONO_TRY(made("an address", fi_getname(&endpoint->fid, name.data(), &bytes)));
  name_.assign(name.data(), bytes);
  return {};
}

// The queue is as large as it may be, with a descriptor to sleep on if the provider has one.
Status Endpoint::make_completions() {
  int code = 0;
  for (std::size_t size = most_completions; size >= least_completions; size /= 2)
    for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
      fi_cq_attr attributes{};
      attributes.size = size;
      attributes.format = FI_CQ_FORMAT_DATA;
      attributes.wait_obj = wait;
      fid_cq* completions = nullptr;
      code = fi_cq_open(domain_.get(), &attributes, &completions, nullptr);
      if (code != 0) continue;
      completions_.reset(completions);
      if (wait == FI_WAIT_NONE || fi_control(&completions->fid, FI_GETWAIT, &descriptor_) != 0)
        descriptor_ = -1;
      return {};
    }
  return made("a completion queue", code);
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
  return make_known(data, bytes, FI_REMOTE_WRITE, "for peers");
}

Result<RegisteredMemory> Endpoint::lend(const std::byte* data, std::size_t bytes) {
  return make_known(data, bytes, FI_WRITE, "to be sent");
}

Result<void*> Endpoint::keep(std::byte* data, std::size_t bytes) {
  if (!needs_descriptors()) return nullptr;
  UNISONO_ASSIGN(RegisteredMemory made,
                 make_known(data, bytes, FI_WRITE | FI_SEND | FI_RECV, "for messages"));
  kept_.push_back(std::move(made));
  return kept_.back().descriptor();
}

// Keys are random, because who knows one may write. Where the provider does not choose them, they
// are as long as it can have them, and one that is taken is drawn again.
Result<RegisteredMemory> Endpoint::make_known(const std::byte* data, std::size_t bytes,
                                              std::uint64_t access, std::string_view purpose) {
  fid_mr* registration = nullptr;
  int code = -FI_ENOKEY;
  for (int draw = 0; draw < most_draws && code == -FI_ENOKEY; ++draw) {
    UNISONO_ASSIGN(const Key random, fresh_key());
    std::uint64_t key = 0;
    std::memcpy(&key, random.data(), std::min(sizeof key, info_->domain_attr->mr_key_size));
    code = fi_mr_reg(domain_.get(), data, bytes, access, 0, key, 0, &registration, nullptr);
  }
  if (code != 0)
    return fabric_error(str("libfabric cannot register ", bytes, " bytes ", purpose), code);
  Owned<fid_mr> owned(registration);
  if (has_mode(FI_MR_ENDPOINT)) {
    code = fi_mr_bind(registration, &endpoint_->fid, 0);
    if (code == 0) code = fi_mr_enable(registration);
    if (code != 0)
      return fabric_error(str("libfabric cannot give its endpoint ", bytes, " bytes ", purpose),
                          code);
  }
  return RegisteredMemory{
      .registration = std::move(owned),
      .key = fi_mr_key(registration),
      .address = has_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(data) : 0};
}

Result<Posted> Endpoint::write(const Write& write, void* context) {
  fid_ep* end = endpoint_.get();
  return posted("libfabric cannot write",
                write.immediate
                    ? fi_writedata(end, write.source, write.bytes, write.descriptor,
                                   *write.immediate, write.to, write.address, write.key, context)
                    : fi_write(end, write.source, write.bytes, write.descriptor, write.to,
                               write.address, write.key, context));
}

Result<Posted> Endpoint::inject(const Write& write) {
  return posted(
      "libfabric cannot write",
      fi_inject_writedata(endpoint_.get(), write.source, write.bytes, write.immediate.value_or(0),
                          write.to, write.address, write.key));
}

Result<Posted> Endpoint::send(std::span<const std::byte> message, void* descriptor, fi_addr_t to,
                              void* context) {
  return posted("libfabric cannot send",
                fi_send(endpoint_.get(), message.data(), message.size(), descriptor, to, context));
}

Result<Posted> Endpoint::receive(std::span<std::byte> buffer, void* descriptor, void* context) {
  return posted("libfabric cannot receive", fi_recv(endpoint_.get(), buffer.data(), buffer.size(),
                                                    descriptor, FI_ADDR_UNSPEC, context));
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
