// What somebody who knows a rank's address at libfabric, and no secret, can send there.

#if __has_include(<rdma/fabric.h>)

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <string.h>

#include "conformance/harness.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/library.h"
#include "transport/ofi/message.h"
#include "transport/ofi/transport.h"

namespace unisono::test {
namespace {

using namespace transport::ofi;

constexpr std::string_view provider = "tcp;ofi_rxm";

Result<std::unique_ptr<Transport>> make(const TransportOptions& options) {
  return make_transport(options, provider);
}

// An endpoint that sends messages with an immediate, which no rank does.
class Stranger {
 public:
  explicit Stranger(std::string_view address) {
    const Library& loaded = **library();
    fi_info* hints = loaded.dupinfo(nullptr);
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->cq_data_size = 4;
    hints->fabric_attr->prov_name = strndup(provider.data(), provider.size());
    EXPECT_EQ(loaded.getinfo(least_version, "127.0.0.1", nullptr, FI_SOURCE, hints, &info_), 0);
    loaded.freeinfo(hints);
    EXPECT_EQ(loaded.fabric(info_->fabric_attr, &fabric_, nullptr), 0);
    EXPECT_EQ(fi_domain(fabric_, info_, &domain_, nullptr), 0);
    fi_av_attr av{};
    EXPECT_EQ(fi_av_open(domain_, &av, &addresses_, nullptr), 0);
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_DATA;
    EXPECT_EQ(fi_cq_open(domain_, &cq, &completions_, nullptr), 0);
    EXPECT_EQ(fi_endpoint(domain_, info_, &endpoint_, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(endpoint_, &addresses_->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_enable(endpoint_), 0);
    const std::string name(address.substr(address.find(' ') + 1));
    EXPECT_EQ(fi_av_insert(addresses_, name.data(), 1, &victim_, 0, nullptr), 1);
  }

  ~Stranger() {
    for (fid* object :
         {&endpoint_->fid, &completions_->fid, &addresses_->fid, &domain_->fid, &fabric_->fid})
      fi_close(object);
    (*library())->freeinfo(info_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Whether it has left.
  bool send(std::uint32_t immediate, Job& job) {
    fi_context2 context{};
    ssize_t posted = -FI_EAGAIN;
    bool is_sent = false;
    return eventually([&] {
      job.progress();
      if (posted != 0)
        posted = fi_senddata(endpoint_, bytes_.data(), bytes_.size(), nullptr, immediate, victim_,
                             &context);
      fi_cq_data_entry entry;
      const ssize_t count = fi_cq_read(completions_, &entry, 1);
      is_sent |= count == 1;
      return is_sent;
    });
  }

 private:
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fi_addr_t victim_ = FI_ADDR_UNSPEC;
  std::array<std::byte, 20> bytes_{};
};

// One that were taken for a write would count as data of a peer, and its receive would be lost: the
// rank has a bounded number of them.
TEST(OfiStranger, MessagesWithImmediatesAreDroppedAndTheJobGoesOn) {
  if (const auto made = make(Job::options(fresh_job())); !made.ok())
    GTEST_SKIP() << made.error().message;
  Job job({"ofi", make, true}, 2);
  Pair pair(job, {.region_bytes = 4096, .signals = 4});
  ASSERT_TRUE(put(*pair.a, "before", 6, 0, {0, 1}));
  ASSERT_TRUE(wait_for_signal(*pair.b, 0, 1));
  Stranger stranger(job.transports[1]->address());
  // Every connection's number, and more of them than there are receives.
  for (std::uint32_t i = 0; i < 200; ++i) {
    const Immediate immediate{.number = i % 8, .sequence = 1, .index = 1, .increment = 1};
    ASSERT_TRUE(stranger.send(immediate.pack(), job));
  }
  for (std::uint64_t value = 2; value < 400; ++value) {
    ASSERT_TRUE(put(*pair.a, "works", 5, 0, {0, value}));
    ASSERT_TRUE(wait_for_signal(*pair.b, 0, value));
    EXPECT_EQ(pair.b->signals()[1].load(), 0u);
  }
  // A connection is made by messages.
  Pair another(job, {.region_bytes = 4096, .signals = 4}, {.channel = 1});
  ASSERT_TRUE(put(*another.a, "works", 5, 0, {0, 1}));
  ASSERT_TRUE(wait_for_signal(*another.b, 0, 1));
}

}  // namespace
}  // namespace unisono::test

#endif
