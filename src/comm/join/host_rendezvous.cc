#include "comm/join/host_rendezvous.h"

#include <algorithm>

#include "base/hmac.h"
#include "base/str.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t tell_timeout_ns = 2'000'000'000;
// They go on to one rank, which serves a visit in less time.
constexpr std::int64_t pace_ns = 100'000;
constexpr std::size_t most_unproved = 256;
// Others come again.
constexpr int most_waiting = 16;
constexpr std::size_t name_bytes = 16;

}  // namespace

sys::Address HostRendezvous::name(const Key& key, std::string_view rendezvous) {
  const Key secret = derive_key(key, "unisono host rendezvous", {as_bytes_of(rendezvous)});
  return {"@unisono-" + hex(std::span(secret).first(name_bytes)), 0};
}

std::unique_ptr<HostRendezvous> HostRendezvous::open(sys::World& world, const sys::Address& name,
                                                     const Key& key, int ranks) {
  auto listener = world.listen(name);
  if (!listener.ok()) return nullptr;
  auto doorkeeper = Doorkeeper::make(world, {}, most_unproved);
  if (!doorkeeper.ok()) return nullptr;
  (*doorkeeper)->admit(Purpose::enrolment, key);
  std::unique_ptr<HostRendezvous> out(
      new HostRendezvous(world, std::move(*listener), std::move(*doorkeeper), ranks));
  out->tasks_.spawn(sys::admit_all(world, *out->listener_, *out->doorkeeper_, *out));
  return out;
}

void HostRendezvous::tell(const Directions& next) {
  next_ = next;
  changed_.notify_all();
}

void HostRendezvous::on_admitted(sys::Admitted admitted) {
  if (const auto visit = Doorkeeper::visit_of(admitted))
    tasks_.spawn(serve(std::move(admitted), *visit));
}

// Who cannot be right enrols at rank 0, which tells all what is wrong.
sys::Task<void> HostRendezvous::serve(sys::Admitted admitted, Visitor visitor) {
  Directions directions{.kind = Directions::Kind::enrol};
  if (visitor.world_size == static_cast<std::uint32_t>(ranks_) && visitor.rank > 0 &&
      visitor.rank < visitor.world_size) {
    visitors_.insert(static_cast<int>(visitor.rank));
    changed_.notify_all();
    if (waiting_ < most_waiting) {
      ++waiting_;
      while (!next_) {
        sys::Wait wait(world_.scheduler(), changed_, sys::no_deadline_ns);
        co_await wait;
      }
      answer_ns_ = std::max(answer_ns_ + pace_ns, world_.now_ns());
      sys::Wait turn(world_.scheduler(), answer_ns_);
      co_await turn;
      --waiting_;
      directions = *next_;
    } else {
      directions.kind = Directions::Kind::come_again;
    }
  }
  Status told = co_await doorkeeper_->direct(std::move(admitted), std::move(directions),
                                             world_.now_ns() + tell_timeout_ns);
  static_cast<void>(told.ok());  // it asks rank 0
}

}  // namespace unisono::comm
