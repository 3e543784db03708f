#include "comm/control/dial.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "sys/tcp_socket.h"

namespace unisono::comm {
namespace {

sys::Task<Result<std::unique_ptr<sys::Stream>>> connect(sys::World& world,
                                                        const sys::Address& address,
                                                        std::int64_t deadline_ns,
                                                        Attempt& attempt) {
  Result<std::unique_ptr<sys::Stream>> stream = co_await world.connect(address, deadline_ns);
  attempt.is_connected = stream.ok();
  co_return std::move(stream);
}

}  // namespace

void Attempt::fail(const Error& with) {
  why = with;
  is_starved = sys::out_of_descriptors();
}

Error own_limit(int rank, const Error& why) {
  Error error = environment_error("rank ", rank, " cannot open more connections: ", why.message);
  error.peer = rank;
  return error;
}

sys::Task<Attempt> dial_once(sys::World& world, const Destination& where, std::int64_t connect_ns,
                             std::int64_t proof_ns) {
  Attempt attempt;
  auto stream = co_await connect(world, where.address, connect_ns, attempt);
  if (!stream.ok()) {
    attempt.fail(stream.error());
    co_return std::move(attempt);
  }
  auto channel = co_await prove_to_server(world, std::move(*stream), where.purpose, where.key,
                                          where.wire, proof_ns, attempt.refusal, where.key_number);
  if (channel.ok())
    attempt.channel = std::move(*channel);
  else
    attempt.fail(channel.error());
  co_return std::move(attempt);
}

sys::Task<Result<Directions>> dial_for_directions(sys::World& world, const Destination& where,
                                                  Visitor visitor, std::int64_t deadline_ns,
                                                  Attempt& attempt) {
  auto stream = co_await connect(world, where.address, deadline_ns, attempt);
  if (!stream.ok()) {
    attempt.fail(stream.error());
    co_return stream.take_error();
  }
  Result<Directions> directions = co_await ask_for_directions(
      std::move(*stream), visitor, where.key, deadline_ns, attempt.refusal);
  if (!directions.ok()) attempt.fail(directions.error());
  co_return std::move(directions);
}

sys::Task<Result<std::unique_ptr<Channel>>> dial(sys::World& world, const Destination& where,
                                                 int rank, Persistence& persistence,
                                                 std::int64_t deadline_ns) {
  std::string why;
  while (world.now_ns() < deadline_ns) {
    const std::int64_t attempt_ns =
        std::min(deadline_ns, world.now_ns() + persistence.connect_timeout_ns());
    Attempt attempt = co_await dial_once(world, where, attempt_ns,
                                         persistence.waits_for_proof() ? deadline_ns : attempt_ns);
    if (attempt.channel) co_return std::move(attempt.channel);
    if (attempt.refusal == Refusal::disagree) co_return attempt.why;
    if (attempt.is_starved) co_return own_limit(rank, attempt.why);
    why = attempt.why.message;
    const Result<std::int64_t> pause_ns = persistence.after(attempt);
    if (!pause_ns.ok()) co_return pause_ns.error();
    sys::Wait pause(world.scheduler(), std::min(deadline_ns, world.now_ns() + *pause_ns));
    co_await pause;
  }
  co_return persistence.too_late(why);
}

}  // namespace unisono::comm
