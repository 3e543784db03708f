#include "transport/nvlink/mail.h"

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"

namespace unisono::transport::nvlink {
namespace {

constexpr std::uint64_t layout = 0x6c69616d31757675;
// Records that are in the region, and of those sent, how many the receiver has taken.
constexpr int arrived_signal = 0;
constexpr int taken_signal = 8;

}  // namespace

Geometry Mail::geometry() {
  return {.region_bytes = slots * sizeof(Record), .signals = 16, .layout = layout};
}

void Mail::progress() {
  if (!failure_.ok()) return;
  failure_ = move();
  if (!failure_.ok())
    log(LogLevel::info, "rank ", connection_->peer(),
        " exchanges no further addresses of device memory with this rank: ",
        failure_.error().message);
}

Status Mail::move() {
  UNISONO_ASSIGN(is_ready_, connection_->ready());
  if (!is_ready_) return {};
  UNISONO_TRY(connection_->progress());
  // Acquire: the peer's reads of a slot before it is written again.
  const std::uint64_t taken = connection_->signals()[taken_signal].load(std::memory_order_acquire);
  if (taken > sent_)
    return peer_error(connection_->peer(), "rank ", connection_->peer(), " reports ", taken,
                      " records read, but only ", sent_, " were sent");
  // Acquire: the records before their signal.
  const std::uint64_t arrived =
      connection_->signals()[arrived_signal].load(std::memory_order_acquire);
  if (arrived < arrived_ || arrived - taken_ > slots)
    return peer_error(connection_->peer(), "rank ", connection_->peer(), " reports ", arrived,
                      " records sent; it had sent ", arrived_, ", and may send no more than ",
                      slots, " beyond the ", taken_, " that were read");
  arrived_ = arrived;
  while (!outbox_.empty() && sent_ - taken < slots) {
    Record& slot = sending_[sent_ % slots];
    slot = outbox_.front();
    UNISONO_ASSIGN(const bool accepted,
                   connection_->try_put(&slot, sizeof slot, sent_ % slots * sizeof slot,
                                        {arrived_signal, sent_ + 1}));
    if (!accepted) break;
    ++sent_;
    outbox_.pop_front();
  }
  if (told_ != taken_) {
    UNISONO_TRY(connection_->try_put(nullptr, 0, 0, {taken_signal, taken_}));
    told_ = taken_;
  }
  return {};
}

bool Mail::has_arrived() const {
  // Relaxed: move() acquires what is then taken.
  return is_ready_ && failure_.ok() &&
         connection_->signals()[arrived_signal].load(std::memory_order_relaxed) != taken_;
}

std::optional<Record> Mail::take() {
  if (!failure_.ok() || taken_ == arrived_) return std::nullopt;
  Record record;
  std::memcpy(&record, connection_->region() + taken_ % slots * sizeof record, sizeof record);
  ++taken_;
  return record;
}

}  // namespace unisono::transport::nvlink
