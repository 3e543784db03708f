// An endpoint of libfabric with all that it stands on, over the provider of tests/fabric, and two
// of them that reach each other.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/harness.h"
#include "support/demanding_provider.h"
#include "transport/ofi/library.h"

namespace unisono::test {

inline constexpr int all_modes =
    FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

struct FreeFabricInfo {
  void operator()(fi_info* info) const { (*transport::ofi::library())->freeinfo(info); }
};
using FabricInfo = std::unique_ptr<fi_info, FreeFabricInfo>;

// What is offered to a caller that keeps these registration modes; nullptr is nothing. No demands:
// without a provider's name.
inline FabricInfo offer(std::optional<std::string> demands, int modes = all_modes,
                        std::size_t data_bytes = 4) {
  const transport::ofi::Library& loaded = **transport::ofi::library();
  const FabricInfo hints(loaded.dupinfo(nullptr));
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = modes;
  hints->domain_attr->cq_data_size = data_bytes;
  if (demands) hints->fabric_attr->prov_name = strdup(demanding(*demands).c_str());
  fi_info* found = nullptr;
  loaded.getinfo(transport::ofi::least_version, "127.0.0.1", nullptr, FI_SOURCE, hints.get(),
                 &found);
  return FabricInfo(found);
}

// A completion, or an error where `error` is one.
struct Completion {
  void* context = nullptr;
  std::uint64_t flags = 0;
  std::uint64_t data = 0;
  int error = 0;
};

class FabricSide {
 public:
  explicit FabricSide(const std::string& demands, std::size_t data_bytes = 4,
                      std::size_t queue_size = 0)
      : info_(offer(demands, all_modes, data_bytes)) {
    EXPECT_NE(info_, nullptr) << demands;
    EXPECT_EQ((*transport::ofi::library())->fabric(info_->fabric_attr, &fabric_, nullptr), 0);
    EXPECT_EQ(fi_domain(fabric_, info_.get(), &domain_, nullptr), 0);
    fi_av_attr addresses{};
    EXPECT_EQ(fi_av_open(domain_, &addresses, &addresses_, nullptr), 0);
    EXPECT_EQ(open_queue(queue_size, &completions_), 0);
    EXPECT_EQ(fi_endpoint(domain_, info_.get(), &endpoint_, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(endpoint_, &addresses_->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_enable(endpoint_), 0);
  }
  ~FabricSide() {
    for (fid_mr* each : registrations_) EXPECT_EQ(fi_close(&each->fid), 0);
    for (fid* object :
         {&endpoint_->fid, &completions_->fid, &addresses_->fid, &domain_->fid, &fabric_->fid})
      EXPECT_EQ(fi_close(object), 0);
  }
  FabricSide(const FabricSide&) = delete;
  FabricSide& operator=(const FabricSide&) = delete;

  const fi_info& info() const { return *info_; }
  fid_domain* domain() const { return domain_; }
  fid_ep* endpoint() const { return endpoint_; }
  fid_cq* queue() const { return completions_; }

  int open_queue(std::size_t size, fid_cq** out) {
    fi_cq_attr attributes{};
    attributes.size = size;
    attributes.format = FI_CQ_FORMAT_DATA;
    return fi_cq_open(domain_, &attributes, out, nullptr);
  }
  fi_addr_t insert(const FabricSide& other) {
    std::array<char, 128> name{};
    std::size_t bytes = name.size();
    EXPECT_EQ(fi_getname(&other.endpoint_->fid, name.data(), &bytes), 0);
    fi_addr_t out = FI_ADDR_UNSPEC;
    EXPECT_EQ(fi_av_insert(addresses_, name.data(), 1, &out, 0, nullptr), 1);
    return out;
  }

  // -FI_... where it is refused. It is closed with this side unless close() is called.
  int register_memory(std::span<std::byte> memory, std::uint64_t access, std::uint64_t key,
                      fid_mr** out) {
    const int code =
        fi_mr_reg(domain_, memory.data(), memory.size(), access, 0, key, 0, out, nullptr);
    if (code == 0) registrations_.push_back(*out);
    return code;
  }
  // Usable, whatever that needs.
  fid_mr* must_register(std::span<std::byte> memory, std::uint64_t access, std::uint64_t key = 1) {
    fid_mr* out = nullptr;
    EXPECT_EQ(register_memory(memory, access, key, &out), 0);
    if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
      EXPECT_EQ(fi_mr_bind(out, &endpoint_->fid, 0), 0);
      EXPECT_EQ(fi_mr_enable(out), 0);
    }
    return out;
  }
  void close(fid_mr* registration) {
    std::erase(registrations_, registration);
    EXPECT_EQ(fi_close(&registration->fid), 0);
  }
  // How a peer names a byte of it.
  std::uint64_t address_of(std::span<std::byte> memory) const {
    return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0
               ? reinterpret_cast<std::uintptr_t>(memory.data())
               : 0;
  }

  // The next completion, if there is one now.
  std::optional<Completion> look() {
    fi_cq_data_entry entry{};
    const ssize_t count = fi_cq_read(completions_, &entry, 1);
    if (count == 1) return Completion{entry.op_context, entry.flags, entry.data, 0};
    if (count != -FI_EAVAIL) return std::nullopt;
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(completions_, &error, 0), 1);
    return Completion{error.op_context, error.flags, 0, error.err};
  }

 private:
  FabricInfo info_;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  std::vector<fid_mr*> registrations_;
};

// `a` reaches `b`.
struct FabricPair {
  explicit FabricPair(const std::string& demands, std::size_t data_bytes = 4,
                      std::size_t queue_size = 0)
      : a(demands, data_bytes, queue_size),
        b(demands, data_bytes, queue_size),
        from_a(a.insert(b)) {
    // The connection is made by a first message, whose memory is registered for what it needs.
    fid_mr* out = b.must_register(first_, FI_RECV, most_key);
    fid_mr* in = a.must_register(first_, FI_SEND, most_key);
    EXPECT_TRUE(posted([&] {
      return fi_recv(b.endpoint(), first_.data(), 1, fi_mr_desc(out), FI_ADDR_UNSPEC, &first_);
    }));
    EXPECT_TRUE(posted([&] {
      return fi_send(a.endpoint(), first_.data() + 1, 1, fi_mr_desc(in), from_a, &first_);
    }));
    EXPECT_EQ(next_of(b).error, 0);
    EXPECT_EQ(next_of(a).error, 0);
    b.close(out);
    a.close(in);
  }

  // Posts until it is taken; the answer to the last post.
  template <class Post>
  ssize_t until_not_busy(Post post) {
    ssize_t code = -FI_EAGAIN;
    EXPECT_TRUE(eventually([&] {
      code = post();
      if (code == -FI_EAGAIN) look();
      return code != -FI_EAGAIN;
    }));
    return code;
  }
  template <class Post>
  bool posted(Post post) {
    return until_not_busy(post) == 0;
  }
  // Posts writes of `a` until one fails, as those do that `b` does not allow: how it failed.
  template <class Post>
  Completion failure_of(Post post) {
    Completion out;
    EXPECT_TRUE(eventually([&] {
      if (const ssize_t code = until_not_busy(post); code != 0)
        out.error = static_cast<int>(-code);
      else
        out = next_of(a);
      return out.error != 0;
    }));
    return out;
  }
  // The next completion of one side, while both look.
  Completion next_of(FabricSide& side) {
    std::vector<Completion>& mine = &side == &a ? of_a_ : of_b_;
    EXPECT_TRUE(eventually([&] {
      if (mine.empty()) look();
      return !mine.empty();
    }));
    if (mine.empty()) return {.error = FI_ETIMEDOUT};
    const Completion out = mine.front();
    mine.erase(mine.begin());
    return out;
  }
  void look() {
    if (auto completion = a.look()) of_a_.push_back(*completion);
    if (auto completion = b.look()) of_b_.push_back(*completion);
  }

  FabricSide a;
  FabricSide b;
  fi_addr_t from_a;

 private:
  static constexpr std::uint64_t most_key = 0xffff;
  std::array<std::byte, 2> first_{};
  std::vector<Completion> of_a_;
  std::vector<Completion> of_b_;
};

// Skips where there is no libfabric, or where the provider cannot be used.
class DemandingProvider : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_demanding_provider())
      GTEST_SKIP() << "tests/fabric needs libfabric's headers and a build without sanitizers";
    if (const auto loaded = transport::ofi::library(); !loaded.ok())
      GTEST_SKIP() << loaded.error().message;
    ASSERT_NE(offer(""), nullptr) << "libfabric was asked before it could find the provider";
  }
};

}  // namespace unisono::test
