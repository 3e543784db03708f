// How windows are made (unisono/window.h).

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/core.h"
#include "comm/window_state.h"
#include "sys/cross_memory.h"

namespace unisono {

Status Window::State::check(int peer, std::size_t offset, std::size_t bytes) const {
  if (peer < 0 || peer >= static_cast<int>(parts.size()))
    return misuse("peer is ", peer, " in a window access on rank ", rank, "; it must be 0 to ",
                  parts.size() - 1);
  const std::uint64_t all = part(peer).bytes;
  if (offset <= all && bytes <= all - offset) return {};
  return misuse("rank ", rank, " accesses bytes ", offset, " to ", offset + bytes,
                " of the window of rank ", peer, ", which has ", all, " bytes");
}

Error Window::State::unreached(int peer) const {
  if (!part(peer).is_on_this_host)
    return environment_error("ranks ", rank, " and ", peer, " are on different hosts; ",
                             is_on_device ? "a window of device memory can be accessed from its "
                                            "own host only"
                                          : "use put and get: no address here leads there");
  return environment_error("rank ", rank, " cannot access the window memory of rank ", peer,
                           is_on_device
                               ? ": the devices have no peer access, UNISONO_GPU_ZERO_COPY is 0, "
                                 "or the memory cannot be shared between processes (allocate it by "
                                 "cudaMalloc, ncclMemAlloc or unisono.torch.MemPool)"
                               : ": host memory of another process is not mapped here; use put");
}

namespace {

using Part = Window::State::Part;

constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);

// Where this process loads and stores it.
std::uint64_t address_here(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

// Signals go between all ranks of a host, whatever nodes they are on. Hosts may share the folder of
// shared memory, as containers with names of their own do; nodes have the numbers from 0 on.
int signals_board(const comm::Job& job) { return -1 - job.roster().host_of(job.rank()); }

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
  writer.number(part.past_word);
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
  part.past_word = reader.number<std::uint8_t>();
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

Result<std::size_t> Window::bytes_of(int rank) const {
  if (!state_) return misuse("this window was not made by a communicator");
  UNISONO_TRY(state_->check(rank, 0, 0));
  return state_->part(rank).bytes;
}

int Window::rank() const { return state_ ? state_->rank : -1; }

Result<void*> Window::pointer(int rank, std::size_t offset) const {
  if (!state_) return misuse("this window was not made by a communicator");
  UNISONO_TRY(state_->check(rank, offset, 0));
  const Part& part = state_->parts[static_cast<std::size_t>(rank)];
  if (part.here == 0 && part.bytes > 0) return state_->unreached(rank);
  return reinterpret_cast<void*>(part.here + offset);
}

Result<Window> Communicator::Core::make_window(void* data, std::size_t bytes, bool is_on_device) {
  UNISONO_TRY(usable());
  if (!is_on_device) UNISONO_TRY(prepare_windows());
  const auto ranks = static_cast<std::size_t>(size);
  auto state = std::make_shared<Window::State>();
  state->communicator = id;
  state->number = windows++;
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
  const Part mine{.address = world.address_of(data, bytes),
                  .bytes = bytes,
                  .past_word = static_cast<std::uint8_t>(address_here(data) % word_bytes),
                  .process = world.process()};
  // Before another rank can put to it.
  if (window_service && !is_on_device) {
    state->service = window_service;
    window_service->open(state->number, {static_cast<std::byte*>(data), bytes});
  }
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
  auto opened =
      comm::Signals::open(of.sys_world(), of.status_page_name(id, epoch, signals_board(of)), rank,
                          ranks_on_this_host(of, world_ranks()), size);
  const std::byte mine{opened.ok()};
  UNISONO_ASSIGN(const comm::Gathered all,
                 members.all_gather(std::span(&mine, 1), of.bootstrap_timeout_ns()));
  for (int other = 0; other < all.size() && !no_signals; ++other)
    if (all[other].size() != 1 || all[other][0] == std::byte{0})
      no_signals = environment_error("rank ", other, " could not open shared memory for signals");
  if (opened.ok()) (*opened)->all_have_joined();
  if (!no_signals) {
    signals = std::move(*opened);
    signals_made.store(signals.get(), std::memory_order_release);
  } else if (!opened.ok()) {
    log(LogLevel::info, "signals are not available: ", opened.error().message);
  }
  return {};
}

Status Communicator::Core::prepare_windows() {
  const std::int64_t limit_ns = job->bootstrap_timeout_ns();
  if (!signals && !no_signals) {
    UNISONO_TRY(make_signals(*job, *group));
    const comm::Scheduler::Pause pause(*scheduler);
    if (device() != nullptr) device()->connections().watch(signals.get());
  }
  if (window_service) return {};
  std::vector<int> afar;
  for (int other = 0; other < size; ++other)
    if (!job->is_on_this_host(world_ranks()[static_cast<std::size_t>(other)]))
      afar.push_back(other);
  if (afar.empty()) return {};
  const auto make = [&]() -> Status {
    if (no_signals) return Error(*no_signals);
    UNISONO_ASSIGN(window_service, comm::WindowService::make(
                                       job, {.communicator = id, .epoch = epoch, .rank = rank},
                                       world_ranks(), afar, *signals));
    service_made.store(window_service.get(), std::memory_order_release);
    return {};
  };
  return group->agree(make(), limit_ns);
}

}  // namespace unisono
