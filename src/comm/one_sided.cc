// This file accesses windows, and sends and takes signals (unisono/window.h).

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/run/backoff.h"
#include "comm/run/interrupt.h"
#include "comm/window_state.h"

namespace unisono {

namespace {

using Part = Window::State::Part;

std::byte* place_of(const Part& part, std::size_t offset) {
  return reinterpret_cast<std::byte*>(part.here + offset);
}

Status status_of(Result<std::uint64_t> value) {
  return value.ok() ? Status() : Status(value.take_error());
}

// Names the peer in the error of an access to memory of another process of this host.
Status of_peer(Status status, int peer) {
  if (status.ok()) return status;
  auto error = status.take_error();
  error->peer = peer;
  return error;
}

}  // namespace

Result<comm::Signals*> Communicator::Core::signals_of_job() {
  UNISONO_TRY(usable());
  if (comm::Signals* const made = signals_made.load(std::memory_order_acquire)) return made;
  if (no_signals) return Error(*no_signals);
  return misuse("communicator ", id, " has no signals on rank ", rank,
                "; make a window first, or ask for them in init (InitOptions::has_signals)");
}

Status Communicator::Core::check_access(const Window& window, int peer, std::size_t offset,
                                        std::size_t bytes, std::string_view what) {
  UNISONO_TRY(usable());
  if (!window.valid() || window.state().communicator != id)
    return misuse("the window of a ", what, " on rank ", rank, " was not made by communicator ",
                  id);
  return window.state().check(peer, offset, bytes);
}

Status Communicator::Core::put(const Window& window, const void* data, std::size_t bytes, int peer,
                               std::size_t offset, int signal, const SignalOptions& options) {
  UNISONO_TRY(check_access(window, peer, offset, bytes, "put"));
  const bool signals_too = signal != no_signal;
  if (signals_too) {
    UNISONO_ASSIGN(const comm::Signals* mine, signals_of_job());
    UNISONO_TRY(mine->check(peer, signal));
  }
  const Window::State& state = window.state();
  if (state.is_on_device != options.stream.has_value())
    return misuse("a put on rank ", rank, options.stream ? " on a stream" : " without a stream",
                  " into a window of ", state.is_on_device ? "device" : "host", " memory");
  if (!state.part(peer).is_on_this_host && !state.is_on_device) {
    if (bytes == 0 && !signals_too) return {};
    return put_afar(state, {static_cast<const std::byte*>(data), bytes}, peer, offset, signal,
                    limit_of(options.timeout));
  }
  if (bytes > 0) UNISONO_TRY(move(state, data, bytes, peer, offset, options));
  return signals_too ? this->signal(peer, signal, options) : Status();
}

Status Communicator::Core::move(const Window::State& state, const void* data, std::size_t bytes,
                                int peer, std::size_t offset, const SignalOptions& options) {
  const Part& part = state.part(peer);
  if (options.stream) {
    if (part.here == 0) return state.unreached(peer);
    UNISONO_TRY(device()->connections().check_buffer("put's buffer", data, rank));
    return device()->connections().copy_to_peer(
        static_cast<sys::cuda::StreamHandle*>(*options.stream), part.here + offset, data, bytes);
  }
  if (part.here != 0) {
    std::memcpy(place_of(part, offset), data, bytes);
    return {};
  }
  return of_peer(job->sys_world().write_memory(part.process, part.address + offset,
                                               {static_cast<const std::byte*>(data), bytes}),
                 peer);
}

Status Communicator::Core::put_afar(const Window::State& state, std::span<const std::byte> data,
                                    int peer, std::size_t offset, int signal,
                                    std::int64_t limit_ns) {
  comm::WindowMessage put{
      .verb = comm::WindowVerb::put, .signal = signal, .window = state.number, .offset = offset};
  const auto step = [&]() -> Result<bool> {
    UNISONO_ASSIGN(const auto sent, window_service->try_put(peer, put, data));
    if (!sent) return false;
    put.offset += *sent;
    data = data.subspan(*sent);
    return data.empty();
  };
  return wait_for_peer(peer, limit_ns, scheduler->now_ns() + limit_ns,
                       str("rank ", peer, " to take a put"), step);
}

Status Communicator::Core::get(const Window& window, void* data, std::size_t bytes, int peer,
                               std::size_t offset, const AccessOptions& options) {
  UNISONO_TRY(check_access(window, peer, offset, bytes, "get"));
  const Window::State& state = window.state();
  if (state.is_on_device)
    return misuse("a get on rank ", rank,
                  " from a window of device memory; copy it by put, or on "
                  "a stream from Window::pointer()");
  if (bytes == 0) return {};
  const Part& part = state.part(peer);
  auto* const destination = static_cast<std::byte*>(data);
  if (!part.is_on_this_host)
    return status_of(ask(
        peer,
        {.verb = comm::WindowVerb::get, .window = state.number, .offset = offset, .bytes = bytes},
        destination, limit_of(options.timeout), "get"));
  if (part.here == 0)
    return of_peer(
        job->sys_world().read_memory(part.process, part.address + offset, {destination, bytes}),
        peer);
  std::memcpy(destination, place_of(part, offset), bytes);
  return {};
}

Result<std::uint64_t> Communicator::Core::change_word(const Window& window, WordOperation operation,
                                                      std::uint64_t operand, std::uint64_t expected,
                                                      int peer, std::size_t offset,
                                                      const AccessOptions& options) {
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  UNISONO_TRY(check_access(window, peer, offset, word_bytes, "change of a word"));
  const Window::State& state = window.state();
  if (state.is_on_device)
    return misuse("rank ", rank,
                  " changes a word of a window of device memory; it must be host "
                  "memory");
  const Part& part = state.part(peer);
  if ((part.past_word + offset) % word_bytes != 0)
    return misuse("rank ", rank, " changes the 8 bytes at ", offset, " of the window of rank ",
                  peer,
                  ", whose address is no multiple of 8; use a window that begins at one, and "
                  "a multiple of 8");
  if (part.is_on_this_host)
    return change_word_here(state, operation, operand, expected, peer, offset);
  return ask(peer,
             {.verb = comm::WindowVerb::word,
              .operation = operation,
              .window = state.number,
              .offset = offset,
              .operand = operand,
              .expected = expected},
             nullptr, limit_of(options.timeout), "change of a word");
}

Result<std::uint64_t> Communicator::Core::change_word_here(const Window::State& state,
                                                           WordOperation operation,
                                                           std::uint64_t operand,
                                                           std::uint64_t expected, int peer,
                                                           std::size_t offset) {
  const Part& part = state.part(peer);
  UNISONO_ASSIGN(comm::Signals* const turns, signals_of_job());
  UNISONO_TRY(turns->begin_turn(peer));
  const auto change = [&]() -> Result<std::uint64_t> {
    if (part.here != 0)
      return comm::change_word(place_of(part, offset), operation, operand, expected);
    std::uint64_t before = 0;
    sys::World& world = job->sys_world();
    UNISONO_TRY(world.read_memory(part.process, part.address + offset,
                                  std::as_writable_bytes(std::span(&before, 1))));
    const std::uint64_t after = comm::apply(operation, before, operand, expected);
    UNISONO_TRY(world.write_memory(part.process, part.address + offset,
                                   std::as_bytes(std::span(&after, 1))));
    return before;
  };
  auto before = change();
  turns->end_turn(peer);
  if (before.ok()) return before;
  auto error = before.take_error();
  error->peer = peer;
  return error;
}

Status Communicator::Core::flush(int peer, const AccessOptions& options) {
  UNISONO_TRY(usable());
  if (peer < 0 || peer >= size)
    return misuse("peer is ", peer, " in a flush on rank ", rank, "; it must be 0 to ", size - 1);
  const bool is_afar = !job->is_on_this_host(world_ranks()[static_cast<std::size_t>(peer)]);
  if (!is_afar || service_made.load(std::memory_order_acquire) == nullptr) return {};
  return status_of(
      ask(peer, {.verb = comm::WindowVerb::flush}, nullptr, limit_of(options.timeout), "flush"));
}

Result<std::uint64_t> Communicator::Core::ask(int peer, const comm::WindowMessage& message,
                                              std::byte* destination, std::int64_t limit_ns,
                                              std::string_view what) {
  comm::WindowService& service = *window_service;
  const auto question = std::make_shared<comm::WindowQuestion>();
  question->destination = destination;
  question->missing_bytes = message.bytes;
  bool is_asked = false;
  const auto step = [&]() -> Result<bool> {
    if (is_asked) return service.look_at(peer, *question);
    UNISONO_ASSIGN(is_asked, service.try_ask(peer, message, question));
    return false;
  };
  Status waited = wait_for_peer(peer, limit_ns, scheduler->now_ns() + limit_ns,
                                str("the answer of rank ", peer, " to a ", what), step);
  if (waited.ok()) return question->value;
  service.forget(*question);
  return waited.take_error();
}

Status Communicator::Core::wait_for_peer(int peer, std::int64_t limit_ns, std::int64_t until_ns,
                                         const std::string& what,
                                         const std::function<Result<bool>()>& step) {
  // No call of this rank may be under way that would learn of a failure.
  constexpr std::int64_t look_interval_ns = 5'000'000;
  comm::WindowService* const service = service_made.load(std::memory_order_acquire);
  const bool is_afar = !job->is_on_this_host(world_ranks()[static_cast<std::size_t>(peer)]);
  std::int64_t looked_ns = scheduler->now_ns();
  comm::Backoff backoff(scheduler->world(), 0);
  comm::InterruptWatch interrupts;
  for (;;) {
    UNISONO_ASSIGN(const bool is_over, step());
    if (is_over) return {};
    if (interrupts.interrupted()) {
      Error error = aborted_error("rank ", rank, " was interrupted while it waited for ", what);
      error.peer = rank;
      scheduler->fail(error);
      return error;
    }
    if (service != nullptr && service->advance()) backoff.reset();
    const std::int64_t now_ns = scheduler->now_ns();
    const bool is_late = now_ns >= until_ns;
    if (is_late || now_ns - looked_ns >= look_interval_ns) {
      looked_ns = now_ns;
      scheduler->look_for_failure();
      UNISONO_TRY(usable());
      if (is_afar && service != nullptr) UNISONO_TRY(service->check_peer(peer));
    }
    if (is_late)
      return timeout_error(peer, "rank ", rank, " has waited ", limit_ns / 1'000'000, " ms for ",
                           what);
    backoff.step([&](std::int64_t ns) {
      if (service != nullptr)
        service->rest(ns);
      else
        scheduler->world().sleep(ns);
    });
  }
}

Status Communicator::Core::signal(int peer, int number, const SignalOptions& options) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_job());
  if (options.stream) {
    UNISONO_ASSIGN(const comm::DevicePath* device, device_for(*options.stream));
    return mine->signal_on(device->connections().shared_device(),
                           static_cast<sys::cuda::StreamHandle*>(*options.stream), peer, number);
  }
  UNISONO_TRY(mine->check(peer, number));
  comm::WindowService* const service = service_made.load(std::memory_order_acquire);
  if (mine->is_on_this_host(peer) || service == nullptr) return mine->signal(peer, number);
  const std::int64_t limit_ns = limit_of(options.timeout);
  return wait_for_peer(peer, limit_ns, scheduler->now_ns() + limit_ns,
                       str("rank ", peer, " to take a signal"),
                       [&] { return service->try_signal(peer, number); });
}

Result<bool> Communicator::Core::test_signals(std::span<const SignalWait> waits) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_job());
  if (auto* const service = service_made.load(std::memory_order_acquire)) service->advance();
  return mine->try_take(waits);
}

Status Communicator::Core::wait_signals(std::span<const SignalWait> waits,
                                        const SignalOptions& options) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_job());
  const std::int64_t limit_ns = limit_of(options.timeout);
  if (options.stream) {
    UNISONO_ASSIGN(const comm::DevicePath* device, device_for(*options.stream));
    return mine->take_on(device->connections().shared_device(),
                         static_cast<sys::cuda::StreamHandle*>(*options.stream), waits, limit_ns);
  }
  const std::int64_t until_ns = scheduler->now_ns() + limit_ns;
  for (;;) {
    UNISONO_ASSIGN(const bool all, test_signals(waits));
    if (all) return {};
    const auto missing = mine->find_missing(waits);
    if (!missing) continue;
    const auto has_come = [&]() -> Result<bool> {
      const auto still = mine->find_missing(waits);
      return !still || still->peer != missing->peer || still->signal != missing->signal;
    };
    UNISONO_TRY(wait_for_peer(missing->peer, limit_ns, until_ns,
                              str("signal ", missing->signal, " from rank ", missing->peer),
                              has_come));
  }
}

}  // namespace unisono
