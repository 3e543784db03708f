// One endpoint of libfabric with all that it stands on: provider, domain, address vector and one
// completion queue. The hub alone calls it, under its mutex.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/ofi/offers.h"
#include "transport/ofi/signalling.h"

namespace unisono::transport::ofi {

template <class Object>
struct CloseFabricObject {
  void operator()(Object* object) const { fi_close(&object->fid); }
};
template <class Object>
using Owned = std::unique_ptr<Object, CloseFabricObject<Object>>;

// Its endpoints lie in memory that both ends map. A thread whose peer in the same process has
// closed its endpoint would write to what has been unmapped, so it serves processes only.
inline constexpr std::string_view shared_memory_provider = "shm";

// Memory that a provider knows, and what peers need to write to it.
struct RegisteredMemory {
  Owned<fid_mr> registration;
  std::uint64_t key = 0;
  std::uint64_t address = 0;  // of its first byte, as a writer names it

  // Its owner names it by this; where there is no registration, it is null.
  void* descriptor() const { return registration ? fi_mr_desc(registration.get()) : nullptr; }
};

// A write to a peer's memory, with the 32 bits that arrive with it, if any do.
struct Write {
  const std::byte* source = nullptr;
  void* descriptor = nullptr;  // of the source, where the provider needs_descriptors()
  std::size_t bytes = 0;
  fi_addr_t to = FI_ADDR_UNSPEC;
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  std::optional<std::uint32_t> immediate = {};
};

// Whether libfabric took it. Later: try again after the next look at the completion queue.
enum class Posted : std::uint8_t { yes, later };

class Endpoint {
 public:
  // `host` is this rank's numeric address, for providers whose addresses are IP addresses; empty
  // for the others. `provider` is one of libfabric's, or empty for the first that can be used.
  static Result<std::unique_ptr<Endpoint>> open(const std::string& host, std::string_view provider);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  std::string_view provider() const;
  // Bytes of its address.
  const std::string& name() const { return name_; }
  // Whether writes, and what arrives with them, arrive in the order in which they were posted, so
  // that a small one needs no completion.
  bool is_ordered() const { return is_ordered_; }
  std::size_t most_write_bytes() const;
  // Whether the provider says that it brings completion data, and how writes are told of.
  bool offers_data() const { return info_->domain_attr->cq_data_size >= immediate_bytes; }
  Signalling signalling() const { return signalling_; }
  // Whether what is sent, written from and received into must be registered.
  bool needs_descriptors() const { return has_mode(FI_MR_LOCAL); }
  // -1 where the provider has none, or where writes are told of by what it does not see.
  int descriptor() const { return descriptor_; }
  // Whether descriptor() will tell of what comes from now on.
  bool arm();

  // `name` has the size of name(), or is refused.
  Result<fi_addr_t> insert(std::string_view name);
  // Peers may write there.
  Result<RegisteredMemory> share(std::byte* data, std::size_t bytes);
  // This end may write from there, which may be memory that nobody may store to.
  Result<RegisteredMemory> lend(const std::byte* data, std::size_t bytes);
  // This end may send and write from there and receive there, as long as the endpoint lives, and so
  // must the memory. Its descriptor; null where the provider needs none.
  Result<void*> keep(std::byte* data, std::size_t bytes);

  // Whether the immediate of a larger write travels behind it, on a write of no bytes:
  // libfabric 1.17 ends the process where a connection breaks in the middle of a write that carries
  // one.
  bool tells_apart(std::size_t bytes) const { return is_ordered_ && bytes > most_injected_bytes_; }
  // It completes when its source is free again, which may be before it has arrived.
  Result<Posted> write(const Write& write, void* context);
  // It writes with an immediate and without a completion. libfabric 1.17 ends the process where a
  // connection breaks while one waits to be sent, so it is for those who wait for an answer to
  // each. Only of bytes that the provider injects, on an ordered endpoint: the source is free
  // again.
  Result<Posted> inject(const Write& write);
  Result<Posted> send(std::span<const std::byte> message, void* descriptor, fi_addr_t to,
                      void* context);
  Result<Posted> receive(std::span<std::byte> buffer, void* descriptor, void* context);
  // How many completions were read; negative: -FI_EAVAIL, then read_error().
  long read(std::span<fi_cq_data_entry> completions);
  fi_cq_err_entry read_error();

 private:
  Endpoint() = default;
  static Result<std::unique_ptr<Endpoint>> open(const fi_info& offer);
  static Result<std::unique_ptr<Endpoint>> make(const fi_info& offer);
  Status make_objects();
  Status make_completions();
  bool has_mode(int mode) const { return (info_->domain_attr->mr_mode & mode) != 0; }
  Result<RegisteredMemory> make_known(const std::byte* data, std::size_t bytes,
                                      std::uint64_t access, std::string_view purpose);

  Info info_;
  // Destroyed in the opposite order.
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> completions_;
  std::vector<RegisteredMemory> kept_;
  Owned<fid_ep> endpoint_;
  std::string name_;
  bool is_ordered_ = false;
  Signalling signalling_ = Signalling::data;
  std::size_t most_injected_bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace unisono::transport::ofi
