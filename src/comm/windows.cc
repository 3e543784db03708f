// Windows, and what is done with them and with signals (unisono/window.h).

#include <unisono/window.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/core.h"
#include "comm/run/backoff.h"
#include "sys/cross_memory.h"
#include "sys/process.h"

namespace unisono {

struct Window::State {
  struct Part {
    std::uint64_t address = 0;  // where the other processes of its host write to it
    std::uint64_t bytes = 0;
    sys::ProcessIdentity process;
    std::uint64_t here = 0;  // where this process loads and stores it; 0: it does not
    bool is_on_this_host = false;
  };
  std::uint64_t communicator = 0;
  int rank = 0;
  bool is_on_device = false;
  void* data = nullptr;     // this rank's
  std::vector<Part> parts;  // by rank

  // Misuse if [offset, offset + bytes) is not in that rank's part.
  Status check(int peer, std::size_t offset, std::size_t bytes) const {
    if (peer < 0 || peer >= static_cast<int>(parts.size()))
      return misuse("peer is ", peer, " in a window access on rank ", rank, "; it must be 0 to ",
                    parts.size() - 1);
    const std::uint64_t all = parts[static_cast<std::size_t>(peer)].bytes;
    if (offset <= all && bytes <= all - offset) return {};
    return misuse("rank ", rank, " accesses bytes ", offset, " to ", offset + bytes,
                  " of the window of rank ", peer, ", which has ", all, " bytes");
  }
};

namespace {

using Part = Window::State::Part;

// Where this process loads and stores it.
std::uint64_t address_here(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

Error unreached(const Window::State& state, int peer) {
  const Part& part = state.parts[static_cast<std::size_t>(peer)];
  if (!part.is_on_this_host)
    return environment_error(
        "ranks ", state.rank, " and ", peer,
        " are on different hosts; a window can be accessed from its own host only");
  return environment_error("rank ", state.rank, " cannot access the window memory of rank ", peer,
                           state.is_on_device
                               ? ": the devices have no peer access, UNISONO_GPU_ZERO_COPY is 0, "
                                 "or the memory cannot be shared between processes (allocate it by "
                                 "cudaMalloc, ncclMemAlloc or unisono.torch.MemPool)"
                               : ": host memory of another process is not mapped here; use put");
}

// Signals go between all ranks of a host, whatever nodes they are on.
constexpr int signals_board = -1;
std::vector<int> ranks_on_this_host(const comm::Job& job, const std::vector<int>& world_ranks) {
  std::vector<int> here;
  for (std::size_t rank = 0; rank < world_ranks.size(); ++rank)
    if (job.is_on_this_host(world_ranks[rank])) here.push_back(static_cast<int>(rank));
  return here;
}

// A rank's part, and where each rank reaches it.
std::vector<std::byte> write_card(const Part& part, std::span<const std::uint64_t> by_rank) {
  WireWriter writer;
  writer.number(part.address);
  writer.number(part.bytes);
  writer.number(static_cast<std::uint32_t>(part.process.pid));
  writer.number(part.process.start_time);
  writer.number(part.process.pid_namespace);
  for (const std::uint64_t address : by_rank) writer.number(address);
  return writer.take();
}

Result<Part> read_card(std::span<const std::byte> bytes, int owner, int reader_rank, int ranks) {
  WireReader reader(bytes);
  Part part;
  part.address = reader.number<std::uint64_t>();
  part.bytes = reader.number<std::uint64_t>();
  part.process.pid = static_cast<std::int32_t>(reader.number<std::uint32_t>());
  part.process.start_time = reader.number<std::uint64_t>();
  part.process.pid_namespace = reader.number<std::uint64_t>();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto here = reader.number<std::uint64_t>();
    if (rank == reader_rank) part.here = here;
  }
  if (!reader.done() || part.address + part.bytes < part.address)
    return peer_error(
        owner, "rank ", owner,
        " sent a description of its window that cannot be read; is it another version of unisono?");
  return part;
}

}  // namespace

void* Window::data() const { return state_ ? state_->data : nullptr; }

std::size_t Window::bytes() const {
  return state_ ? state_->parts[static_cast<std::size_t>(state_->rank)].bytes : 0;
}

int Window::rank() const { return state_ ? state_->rank : -1; }

Result<void*> Window::pointer(int rank, std::size_t offset) const {
  if (!state_) return misuse("this window was not made by a communicator");
  UNISONO_TRY(state_->check(rank, offset, 0));
  const Part& part = state_->parts[static_cast<std::size_t>(rank)];
  if (part.here == 0 && part.bytes > 0) return unreached(*state_, rank);
  return reinterpret_cast<void*>(part.here + offset);
}

Result<Window> Communicator::Core::make_window(void* data, std::size_t bytes, bool is_on_device) {
  UNISONO_TRY(usable());
  const auto ranks = static_cast<std::size_t>(size);
  auto state = std::make_shared<Window::State>();
  state->communicator = id;
  state->rank = rank;
  state->is_on_device = is_on_device;
  std::vector<std::uint64_t> by_rank(ranks);
  // A rank whose memory is not reached takes part all the same: the others may be.
  if (is_on_device && bytes > 0 && device() != nullptr) {
    constexpr std::int64_t patience_ns = 1'000'000'000;
    if (device()->connections().register_memory(data, bytes, patience_ns).ok())
      device()->connections().find_peer_mappings(data, bytes, by_rank, true);
  }
  const auto is_on_this_node = [&](int other) {
    return other != world_ranks()[static_cast<std::size_t>(rank)] && job->is_on_this_host(other);
  };
  if (!is_on_device && std::ranges::any_of(world_ranks(), is_on_this_node))
    sys::allow_cross_memory_reads();
  sys::World& world = job->sys_world();
  state->data = data;
  const Part mine{
      .address = world.address_of(data, bytes), .bytes = bytes, .process = world.process()};
  UNISONO_ASSIGN(const comm::Gathered all,
                 group->all_gather(write_card(mine, by_rank), job->bootstrap_timeout_ns()));
  for (int owner = 0; owner < all.size(); ++owner) {
    UNISONO_ASSIGN(Part part, read_card(all[owner], owner, rank, size));
    part.is_on_this_host = job->is_on_this_host(world_ranks()[static_cast<std::size_t>(owner)]);
    if (!part.is_on_this_host) part.here = 0;
    if (owner == rank)
      part.here = address_here(data);
    else if (!is_on_device && part.is_on_this_host)
      part.here = address_here(world.find_memory(part.process, part.address));
    state->parts.push_back(part);
  }
  return Window(std::move(state));
}

Status Communicator::Core::make_signals(const comm::Job& of, comm::ControlGroup& members) {
  auto opened = comm::Signals::open(of.sys_world(), of.status_page_name(id, epoch, signals_board),
                                    rank, ranks_on_this_host(of, world_ranks()), size);
  const std::byte mine{opened.ok()};
  UNISONO_ASSIGN(const comm::Gathered all,
                 members.all_gather(std::span(&mine, 1), of.bootstrap_timeout_ns()));
  for (int other = 0; other < all.size() && !no_signals; ++other)
    if (all[other].size() != 1 || all[other][0] == std::byte{0})
      no_signals = environment_error("rank ", other, " could not open shared memory for signals");
  if (opened.ok()) (*opened)->all_have_joined();
  if (!no_signals)
    signals = std::move(*opened);
  else if (!opened.ok())
    log(LogLevel::info, "signals are not available: ", opened.error().message);
  return {};
}

Result<comm::Signals*> Communicator::Core::signals_of_host() {
  UNISONO_TRY(usable());
  if (signals) return signals.get();
  if (no_signals) return Error(*no_signals);
  return misuse("communicator ", id, " has no signals on rank ", rank,
                "; ask for them in init (InitOptions::has_signals)");
}

Status Communicator::Core::put(const Window& window, const void* data, std::size_t bytes, int peer,
                               std::size_t offset, int signal, const SignalOptions& options) {
  UNISONO_TRY(usable());
  const bool signals_too = signal != no_signal;
  if (signals_too) {
    UNISONO_ASSIGN(const comm::Signals* mine, signals_of_host());
    UNISONO_TRY(mine->check(peer, signal));
  }
  if (!window.valid() || window.state().communicator != id)
    return misuse("the window of a put on rank ", rank, " was not made by communicator ", id);
  const Window::State& state = window.state();
  UNISONO_TRY(state.check(peer, offset, bytes));
  if (state.is_on_device != options.stream.has_value())
    return misuse("a put on rank ", rank, options.stream ? " on a stream" : " without a stream",
                  " into a window of ", state.is_on_device ? "device" : "host", " memory");
  if (bytes > 0) UNISONO_TRY(move(state, data, bytes, peer, offset, options));
  return signals_too ? this->signal(peer, signal, options) : Status();
}

Status Communicator::Core::move(const Window::State& state, const void* data, std::size_t bytes,
                                int peer, std::size_t offset, const SignalOptions& options) {
  const Part& part = state.parts[static_cast<std::size_t>(peer)];
  if (options.stream) {
    if (part.here == 0) return unreached(state, peer);
    UNISONO_TRY(device()->connections().check_buffer("put's buffer", data, rank));
    return device()->connections().copy_to_peer(
        static_cast<sys::cuda::StreamHandle*>(*options.stream), part.here + offset, data, bytes);
  }
  if (part.here != 0) {
    std::memcpy(reinterpret_cast<void*>(part.here + offset), data, bytes);
    return {};
  }
  if (!part.is_on_this_host) return unreached(state, peer);
  auto status = job->sys_world().write_memory(part.process, part.address + offset,
                                              {static_cast<const std::byte*>(data), bytes});
  if (status.ok()) return {};
  auto error = status.take_error();
  error->peer = peer;
  return error;
}

Status Communicator::Core::signal(int peer, int number, const SignalOptions& options) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_host());
  if (!options.stream) return mine->signal(peer, number);
  UNISONO_ASSIGN(const comm::DevicePath* device, device_for(*options.stream));
  return mine->signal_on(device->connections().shared_device(),
                         static_cast<sys::cuda::StreamHandle*>(*options.stream), peer, number);
}

Result<bool> Communicator::Core::try_take_signals(std::span<const SignalWait> waits) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_host());
  return mine->try_take(waits);
}

Status Communicator::Core::take_signals(std::span<const SignalWait> waits,
                                        const SignalOptions& options) {
  UNISONO_ASSIGN(comm::Signals* const mine, signals_of_host());
  const std::int64_t limit_ns = options.timeout.count() > 0 ? options.timeout.count() : timeout_ns;
  if (options.stream) {
    UNISONO_ASSIGN(const comm::DevicePath* device, device_for(*options.stream));
    return mine->take_on(device->connections().shared_device(),
                         static_cast<sys::cuda::StreamHandle*>(*options.stream), waits, limit_ns);
  }
  // No call of this rank may be under way that would learn of a failure.
  constexpr std::int64_t look_interval_ns = 5'000'000;
  std::int64_t looked_ns = scheduler->now_ns();
  const std::int64_t until_ns = looked_ns + limit_ns;
  comm::Backoff backoff(scheduler->world(), 0);
  for (;;) {
    UNISONO_ASSIGN(const bool all, try_take_signals(waits));
    if (all) return {};
    const std::int64_t now_ns = scheduler->now_ns();
    const bool is_late = now_ns >= until_ns;
    if (is_late || now_ns - looked_ns >= look_interval_ns) {
      looked_ns = now_ns;
      scheduler->look_for_failure();
      UNISONO_TRY(usable());
    }
    const auto missing = is_late ? mine->find_missing(waits) : std::nullopt;
    if (missing)
      return timeout_error(missing->peer, "rank ", rank, " has waited ", limit_ns / 1'000'000,
                           " ms for signal ", missing->signal, " from rank ", missing->peer);
    backoff.step();
  }
}

}  // namespace unisono
