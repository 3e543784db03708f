#include "transport/ofi/signalling.h"

#include <rdma/fi_errno.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "transport/clock.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/library.h"
#include "transport/ofi/message.h"

namespace unisono::transport::ofi {
namespace {

constexpr std::uint32_t trial_immediate = 0x756f6669;
constexpr std::uint64_t trial_word = 0x756e69736f6e6f21;
constexpr std::int64_t most_trial_ns = 5 * ns_per_s;
// After the second put of an ordered wire has arrived, the completion data of the first are read
// for so much longer, in case that the two take different ways to this end.
constexpr std::int64_t data_behind_ns = 100 * ns_per_ms;

class Trial {
 public:
  explicit Trial(std::unique_ptr<Endpoint> endpoint)
      : memory_(std::make_unique<Memory>()), endpoint_(std::move(endpoint)) {}

  Result<Signalling> run();

 private:
  struct Put {
    fi_context2 context{};
    std::uint64_t source = trial_word;
    std::uint64_t target = 0;
  };
  // The provider reads and writes it as long as the endpoint lives.
  struct Memory {
    Put with_data, plain;
    fi_context2 receive_context{};
    std::array<std::byte, most_message_bytes> received{};
  };
  struct State {
    Write write;
    bool is_posted = false;
    bool is_over = false;
    std::string failed;  // why, if it has
  };

  Status prepare();
  void post(State& state, Put& put);
  void look();
  void read_error();
  static bool has_landed(Put& put) {
    return std::atomic_ref(put.target).load(std::memory_order_acquire) == trial_word;
  }
  bool is_decided(std::int64_t now);
  Result<Signalling> decide() const;

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Endpoint> endpoint_;
  RegisteredMemory shared_;
  State with_data_;
  State plain_;
  bool has_data_ = false;
  std::int64_t plain_landed_ns_ = 0;
};

Status Trial::prepare() {
  UNISONO_ASSIGN(const fi_addr_t self, endpoint_->insert(endpoint_->name()));
  auto* const begin = reinterpret_cast<std::byte*>(memory_.get());
  UNISONO_ASSIGN(shared_, endpoint_->share(begin, sizeof *memory_));
  UNISONO_ASSIGN(void* const descriptor, endpoint_->keep(begin, sizeof *memory_));
  const auto to = [&](Put& put) {
    const auto offset = reinterpret_cast<std::byte*>(&put.target) - begin;
    return Write{.source = reinterpret_cast<const std::byte*>(&put.source),
                 .descriptor = descriptor,
                 .bytes = sizeof put.source,
                 .to = self,
                 .address = shared_.address + static_cast<std::uint64_t>(offset),
                 .key = shared_.key};
  };
  with_data_.write = to(memory_->with_data);
  with_data_.write.immediate = trial_immediate;
  plain_.write = to(memory_->plain);
  // Some cards take one for each write that brings completion data.
  (void)endpoint_->receive(memory_->received, descriptor, &memory_->receive_context);
  if (!endpoint_->offers_data())
    with_data_ = {.write = {}, .is_posted = true, .is_over = true, .failed = "it offers none"};
  return {};
}

void Trial::post(State& state, Put& put) {
  auto posted = endpoint_->write(state.write, &put.context);
  if (posted.ok() && *posted == Posted::later) return;
  state.is_posted = true;
  if (posted.ok()) return;
  state.is_over = true;
  state.failed = posted.take_error()->message;
}

void Trial::look() {
  std::array<fi_cq_data_entry, 8> entries;
  const long count = endpoint_->read(entries);
  if (count == -FI_EAVAIL) read_error();
  for (long i = 0; i < count; ++i) {
    const fi_cq_data_entry& entry = entries[static_cast<std::size_t>(i)];
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
      has_data_ |= static_cast<std::uint32_t>(entry.data) == trial_immediate;
    else if (entry.op_context == &memory_->with_data.context)
      with_data_.is_over = true;
    else if (entry.op_context == &memory_->plain.context)
      plain_.is_over = true;
  }
  if (plain_landed_ns_ == 0 && has_landed(memory_->plain)) plain_landed_ns_ = now_ns();
}

// An error that does not say whose it is may be of either.
void Trial::read_error() {
  const fi_cq_err_entry entry = endpoint_->read_error();
  const auto fail = [&](State& state, const Put& put) {
    const bool is_meant = entry.op_context == &put.context || entry.op_context == nullptr;
    if (!is_meant || !state.is_posted || state.is_over) return;
    state.is_over = true;
    state.failed = (*library())->strerror(entry.err);
  };
  fail(with_data_, memory_->with_data);
  fail(plain_, memory_->plain);
}

bool Trial::is_decided(std::int64_t now) {
  if (!with_data_.is_over || !plain_.is_over) return false;
  if (has_data_) return has_landed(memory_->with_data);
  if (!plain_.failed.empty()) return true;
  if (plain_landed_ns_ == 0) return false;
  if (!with_data_.failed.empty()) return true;
  return endpoint_->is_ordered() && now - plain_landed_ns_ > data_behind_ns;
}

Result<Signalling> Trial::decide() const {
  if (has_data_) return Signalling::data;
  const bool has_landed = plain_landed_ns_ != 0;
  const std::string why = !with_data_.failed.empty() ? with_data_.failed : "they do not arrive";
  if (!has_landed && with_data_.failed.empty() && plain_.failed.empty()) {
    log(LogLevel::warn, "libfabric's ", endpoint_->provider(),
        " brings no put to its own endpoint within ", most_trial_ns / ns_per_s,
        " s, so that its completion data were not tried");
    return Signalling::data;
  }
  if (!has_landed)
    return environment_error("a put to its own endpoint fails: ",
                             plain_.failed.empty() ? why : plain_.failed);
  if (!endpoint_->is_ordered())
    return environment_error(
        "it cannot tell that a write has arrived: it brings no completion "
        "data (",
        why, "), and keeps no order of writes");
  log(LogLevel::info, "libfabric's ", endpoint_->provider(),
      " brings no completion data with a remote write: ", why);
  return Signalling::ring;
}

Result<Signalling> Trial::run() {
  UNISONO_TRY(prepare());
  const std::int64_t begin = now_ns();
  for (std::int64_t now = begin; now - begin < most_trial_ns && !is_decided(now); now = now_ns()) {
    if (!with_data_.is_posted) post(with_data_, memory_->with_data);
    // Behind it.
    if (with_data_.is_posted && !plain_.is_posted) post(plain_, memory_->plain);
    look();
    std::this_thread::yield();
  }
  return decide();
}

}  // namespace

std::string_view describe(Signalling way) {
  return way == Signalling::data ? "completion data" : "an ordered write into a ring";
}

Result<Signalling> try_signalling(std::unique_ptr<Endpoint> endpoint) {
  return Trial(std::move(endpoint)).run();
}

}  // namespace unisono::transport::ofi
