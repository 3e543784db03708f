// libfabric's objects as this provider hands them out. Each lies over the object of the provider
// beneath.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "fabric/demands.h"

namespace unisono::test::fabric {

// A function that libfabric's tables name and this provider does not have.
struct Absent {
  template <class Out, class... In>
  using Function = Out (*)(In...);
  template <class Out, class... In>
  constexpr operator Function<Out, In...>() const {
    return [](In...) -> Out {
      if constexpr (std::is_pointer_v<Out>)
        return nullptr;
      else
        return static_cast<Out>(-FI_ENOSYS);
    };
  }
};
inline constexpr Absent absent{};

// Says on stderr what the caller did wrong.
__attribute__((format(printf, 1, 2))) void complain(const char* format, ...);

template <class Object>
int close_below(Object*& object) {
  const int code = object == nullptr ? 0 : fi_close(&object->fid);
  if (code == 0) object = nullptr;
  return code;
}

struct Domain;
struct Endpoint;

struct Fabric : fid_fabric {
  Demands demands;
  fid_fabric* below = nullptr;
  int domains = 0;
};

struct Registration : fid_mr {
  Domain* domain = nullptr;
  std::uint64_t id = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t access = 0;
  std::uint64_t asked_key = 0;
  Endpoint* endpoint = nullptr;
  bool is_enabled = false;
  fid_mr* below = nullptr;  // where peers have access
};

struct Addresses : fid_av {
  Domain* domain = nullptr;
  fid_av* below = nullptr;
};

// A write as the caller posted it.
struct Write {
  std::vector<std::byte> copy;  // of the source, where the caller may have it back
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
  fi_addr_t to = FI_ADDR_UNSPEC;
  std::uint64_t address = 0;  // as the provider beneath wants it
  std::uint64_t key = 0;
  std::uint64_t data = 0;
  std::uint64_t flags = 0;
  void* context = nullptr;
  bool reports = true;             // whether it has a completion
  std::uint64_t registration = 0;  // the id of its source's, or 0

  struct Piece {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  std::vector<Piece> pieces;  // the last one brings the data
  int looks_to_wait = 0;
  std::size_t under_way = 0;
  int error = 0;
};

// What the provider beneath has and has not completed. Its context there.
struct Operation {
  fi_context2 for_below{};
  Endpoint* endpoint = nullptr;  // nullptr once it has closed
  std::uint64_t flags = 0;       // of its completion
  void* context = nullptr;
  std::uint64_t registration = 0;  // the id of its buffer's, or 0
  std::shared_ptr<Write> write;    // of one that was held here
};

struct Queue : fid_cq {
  struct Item {
    fi_cq_data_entry entry{};
    int error = 0;
  };
  Domain* domain = nullptr;
  fid_cq* below = nullptr;
  std::size_t size = 0;  // 0: unbounded
  std::deque<Item> items;
  bool is_overrun = false;
  int endpoints = 0;

  // Takes over what has completed beneath. The domain's mutex is held.
  void drain();
  void deliver(const fi_cq_data_entry& entry, int error);

 private:
  void complete(const fi_cq_data_entry& entry, int error);
};

// Writes that the provider beneath has not yet. The domain's mutex is held.
class Wire {
 public:
  explicit Wire(const Demands& demands) : demands_(demands), random_(demands.seed) {}
  bool is_full(fi_addr_t to) const;
  bool is_empty() const { return held_.empty() && under_way_ == 0; }
  void hold(std::shared_ptr<Write> write);
  // Hands on some of them.
  void pump(Endpoint& endpoint);
  void completed() { --under_way_; }

 private:
  static constexpr std::ptrdiff_t most_held_of_a_peer = 64;
  void cut(Write& write);
  void fail(Endpoint& endpoint, Write& write, int error);
  // Hands on one piece; what the provider beneath answers.
  ssize_t post_piece(Endpoint& endpoint, const std::shared_ptr<Write>& write);

  Demands demands_;
  std::mt19937_64 random_;
  std::vector<std::shared_ptr<Write>> held_;  // in order, if there is one
  std::size_t under_way_ = 0;
};

struct Endpoint : fid_ep {
  explicit Endpoint(const Demands& demands) : fid_ep{}, wire(demands), random(demands.seed + 1) {}
  Domain* domain = nullptr;
  fid_ep* below = nullptr;
  Queue* transmits = nullptr;
  Queue* receives = nullptr;
  bool is_enabled = false;
  std::uint64_t write_flags = 0;  // of writes that are posted without any
  int registrations = 0;
  Wire wire;
  std::mt19937_64 random;
  int refusals_left = 0;

  // Whether a post is answered with -FI_EAGAIN, where such posts are: `can_be_busy`.
  bool is_busy(bool can_be_busy);
};

struct Domain : fid_domain {
  Fabric* fabric = nullptr;
  fi_info* info_below = nullptr;
  fid_domain* below = nullptr;

  // Guards all that belongs to this domain, and the calls to the provider beneath.
  std::mutex mutex;
  std::map<std::uint64_t, Registration*> registrations;  // by id
  std::map<std::uint64_t, Registration*> keys;
  std::uint64_t last_id = 0;
  std::set<Operation*> operations;
  std::set<Queue*> queues;
  std::set<Endpoint*> endpoints;

  // The card: hands on what is held here, and takes what arrives, although nobody looks.
  std::thread card;
  std::condition_variable ends;
  bool is_ending = false;

  const Demands& demands() const { return fabric->demands; }
  // The live registration of this domain that a descriptor stands for, or nullptr.
  Registration* find(const void* descriptor) const;
  // What `post` hands to the provider beneath, with its context there; what that answers.
  template <class Post>
  ssize_t begin(Operation operation, Post post) {
    auto* made = new Operation(std::move(operation));
    operations.insert(made);
    const ssize_t code = post(made);
    if (code != 0) drop(made);
    return code;
  }
  void drop(Operation* operation);
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context);
int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** out, void* context);
int open_addresses(fid_domain* domain, fi_av_attr* attributes, fid_av** out, void* context);
int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** out, void* context);
int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** out, void* context);
fi_ops_mr& registration_calls();
fi_ops_rma& write_calls();

// What the provider beneath offers for an offer of this one, whose addresses are kept; the caller
// frees it.
int info_below(std::uint32_t version, const fi_info& offer, fi_info** out);

// The fid is the first member of each of libfabric's objects.
template <class Object, class Base>
Object& object_of(fid* object) {
  return static_cast<Object&>(*reinterpret_cast<Base*>(object));
}

}  // namespace unisono::test::fabric
