#include "transport/emulated/wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/try.h"

namespace unisono::transport::emulated {

Wire::Wire(Network& network, int low_process, int high_process) : network_(network) {
  ends_[0].process = low_process;
  ends_[1].process = high_process;
}

Status Wire::join(std::size_t which, const ConnectionRequest& request) {
  End& end = ends_[which];
  const Geometry& geometry = request.geometry;
  end.exposed.emplace(request.self, request.peer);
  end.exposed->start_keys(network_.fresh_keys());
  end.geometry = geometry;
  UNISONO_ASSIGN(auto region, sys::PrivateMemory::allocate(geometry.region_bytes));
  end.region.emplace(std::move(region));
  end.signals =
      std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(geometry.signals));
  end.is_joined = true;
  // Who comes first is heard once the other is there to hear.
  if (ends_[1 - which].is_joined)
    for (const std::size_t from : {std::size_t{0}, std::size_t{1}})
      say(from, [](End& to) { to.peer_joined = true; });
  if (!is_alive(1 - which)) end_by_death(1 - which);
  return {};
}

bool Wire::is_alive(std::size_t which) const {
  return network_.simulation_.is_alive(ends_[which].process);
}

bool Wire::is_cut() const {
  return network_.simulation_.cut_until_ns(ends_[0].process, ends_[1].process) >
         network_.simulation_.now_ns();
}

std::int64_t Wire::arrival_ns(std::size_t from, std::size_t bytes) {
  sys::Simulation& simulation = network_.simulation_;
  const NetworkOptions& options = network_.options_;
  End& end = ends_[from];
  const auto range =
      static_cast<std::uint64_t>(options.max_latency_ns - options.min_latency_ns + 1);
  const auto latency =
      options.min_latency_ns + static_cast<std::int64_t>(simulation.random() % range);
  const auto sending = static_cast<std::int64_t>(bytes) * 1'000'000'000 / options.bytes_per_second;
  end.is_free_ns = std::max(end.is_free_ns, simulation.now_ns()) + sending;
  const std::int64_t cut_ns = simulation.cut_until_ns(ends_[0].process, ends_[1].process);
  if (cut_ns == sys::no_deadline_ns) return sys::no_deadline_ns;
  return std::max(end.is_free_ns, cut_ns) + latency;
}

void Wire::say(std::size_t from, std::function<void(End&)> change) {
  if (!is_alive(from)) return;
  const std::int64_t time_ns = std::max(ends_[from].last_word_ns, arrival_ns(from, 0));
  if (time_ns == sys::no_deadline_ns) return;
  ends_[from].last_word_ns = time_ns;
  network_.simulation_.at(time_ns, [wire = shared_from_this(), from, change = std::move(change)] {
    change(wire->ends_[1 - from]);
    wire->wake(1 - from);
  });
}

bool Wire::try_put(std::size_t which, std::span<const std::byte> bytes, std::uint64_t memory,
                   std::size_t offset, Signal signal) {
  End& end = ends_[which];
  if (end.underway_bytes > 0 && !bytes.empty() &&
      end.underway_bytes + bytes.size() > network_.options_.most_underway_bytes)
    return false;
  ++end.started;
  auto put = std::make_shared<Put>();
  put->source = bytes.data();
  put->size = bytes.size();
  put->memory = memory;
  put->offset = offset;
  put->signal = signal;
  end.under_way.push_back(put);
  end.underway_bytes += bytes.size();
  sys::Simulation& simulation = network_.simulation_;
  const std::int64_t arrival = arrival_ns(which, bytes.size());
  if (arrival == sys::no_deadline_ns) return true;
  const std::int64_t now = simulation.now_ns();
  const auto leaves =
      now + static_cast<std::int64_t>(simulation.random() %
                                      static_cast<std::uint64_t>(arrival - now + 1));
  simulation.at(leaves, [wire = shared_from_this(), which, put] { wire->take(which, *put); });
  simulation.at(arrival, [wire = shared_from_this(), which, put] { wire->arrive(which, put); });
  return true;
}

// The bytes leave the source, if that is still there: who goes has waited for its puts, or given up
// what they are for.
void Wire::take(std::size_t from, Put& put) {
  End& end = ends_[from];
  if (put.has_left || !is_alive(from) || (put.size > 0 && (end.is_gone || end.is_aborted))) return;
  put.has_left = true;
  reach(from, "transport.read_source");
  if (put.size > 0) put.bytes.assign(put.source, put.source + put.size);
  std::uint64_t completed = end.started - end.under_way.size();
  for (const auto& one : end.under_way) {
    if (!one->has_left) break;
    ++completed;
  }
  end.completed = std::max(end.completed, completed);
  wake(from);
}

// The memory of a process that has died is left alone.
void Wire::store(End& to, const Put& put) {
  if (put.size == 0 || !network_.simulation_.is_alive(to.process)) return;
  if (put.memory == 0) {
    std::memcpy(to.region->data() + put.offset, put.bytes.data(), put.size);
    return;
  }
  auto exposed = to.exposed->place(Access::put, put.memory, put.offset, put.size);
  if (exposed.ok())
    std::memcpy(*exposed, put.bytes.data(), put.size);
  else
    to.violation = *exposed.take_error();
}

// At once, or in progress() where the network needs that.
void Wire::deliver(std::size_t to, std::function<void()> take) {
  End& end = ends_[to];
  if (network_.options_.needs_progress && !end.is_gone)
    end.inbox.push_back(std::move(take));
  else
    take();
  wake(to);
}

void Wire::arrive(std::size_t from, const std::shared_ptr<Put>& put) {
  take(from, *put);
  if (!put->has_left) return;
  reach(1 - from, "transport.arrival");
  deliver(1 - from, [this, from, put] { land(from, *put); });
  network_.simulation_.note(put->size);
}

void Wire::receive(std::size_t which) {
  for (auto& inbox = ends_[which].inbox; !inbox.empty(); inbox.pop_front()) inbox.front()();
}

bool Wire::try_get(std::size_t which, std::span<std::byte> destination, std::uint64_t memory,
                   std::size_t offset) {
  End& end = ends_[which];
  if (end.got_bytes > 0 && !destination.empty() &&
      end.got_bytes + destination.size() > network_.options_.most_underway_bytes)
    return false;
  ++end.gets_started;
  auto get = std::make_shared<Get>();
  get->destination = destination.data();
  get->size = destination.size();
  get->memory = memory;
  get->offset = offset;
  end.gets.push_back(get);
  end.got_bytes += get->size;
  if (get->size == 0) {
    get->has_arrived = true;
    complete_gets(end);
    return true;
  }
  const std::int64_t asked_ns = arrival_ns(which, 0);
  if (asked_ns == sys::no_deadline_ns) return true;
  network_.simulation_.at(asked_ns, [wire = shared_from_this(), which, get] {
    if (!wire->is_alive(1 - which)) return;
    wire->reach(1 - which, "transport.get_asked");
    wire->deliver(1 - which, [wire = wire.get(), which, get] { wire->answer(1 - which, get); });
  });
  return true;
}

// The bytes are read at any time between the request and their arrival.
void Wire::answer(std::size_t owner, const std::shared_ptr<Get>& get) {
  sys::Simulation& simulation = network_.simulation_;
  const std::int64_t now = simulation.now_ns();
  const std::int64_t arrival = arrival_ns(owner, get->size);
  if (arrival == sys::no_deadline_ns) return;
  const auto read_ns =
      now + static_cast<std::int64_t>(simulation.random() %
                                      static_cast<std::uint64_t>(arrival - now + 1));
  simulation.at(read_ns, [wire = shared_from_this(), owner, get] { wire->read(owner, *get); });
  simulation.at(arrival, [wire = shared_from_this(), owner, get] {
    wire->read(owner, *get);
    if (!get->was_read || !wire->is_alive(1 - owner)) return;
    wire->reach(1 - owner, "transport.get_arrival");
    wire->network_.simulation_.note(get->size);
    wire->deliver(1 - owner, [wire = wire.get(), owner, get] { wire->fill(1 - owner, *get); });
  });
}

// Memory of a process that has died, or of an end that has given up, is left alone.
void Wire::read(std::size_t owner, Get& get) {
  End& end = ends_[owner];
  if (get.was_read || !is_alive(owner)) return;
  reach(owner, "transport.get_read");
  if (!is_alive(owner) || end.is_gone || end.is_aborted || end.violation) return;
  auto exposed = end.exposed->place(Access::get, get.memory, get.offset, get.size);
  if (!exposed.ok()) {
    end.violation = *exposed.take_error();
    return;
  }
  get.bytes.assign(*exposed, *exposed + get.size);
  get.was_read = true;
}

void Wire::fill(std::size_t getter, Get& get) {
  End& end = ends_[getter];
  if (end.is_gone || end.is_aborted || !is_alive(getter)) return;
  std::ranges::copy(get.bytes, get.destination);
  get.bytes = {};
  get.has_arrived = true;
  complete_gets(end);
}

void Wire::complete_gets(End& end) {
  for (; !end.gets.empty() && end.gets.front()->has_arrived; end.gets.pop_front())
    end.got_bytes -= end.gets.front()->size;
}

void Wire::land(std::size_t from, Put& put) {
  End& end = ends_[from];
  End& to = ends_[1 - from];
  if (!to.is_gone && to.is_joined && !to.violation) store(to, put);
  put.has_arrived = true;
  put.bytes = {};
  while (!end.under_way.empty() && end.under_way.front()->has_arrived) {
    const auto done = std::move(end.under_way.front());
    end.under_way.pop_front();
    end.underway_bytes -= done->size;
    end.completed = std::max(end.completed, end.started - end.under_way.size());
    if (!to.is_gone && !to.violation && done->signal.index >= 0)
      // Release: as transport.h says of a signal.
      to.signals[static_cast<std::size_t>(done->signal.index)].store(done->signal.value,
                                                                     std::memory_order_release);
  }
  if (!end.is_gone) wake(from);
}

void Wire::refuse(std::size_t which) {
  say(which, [](End& to) { to.is_refused = true; });
}

void Wire::leave(std::size_t which) {
  ends_[which].is_gone = true;
  const bool is_in_order = is_alive(which) && !ends_[which].is_aborted;
  network_.ends_left_exposed_ += is_in_order && !ends_[which].exposed->empty();
  ends_[which].exposed->clear();
  receive(which);
  // After all that is under way.
  End& end = ends_[which];
  end.last_word_ns = std::max(end.last_word_ns, end.under_way.empty() ? 0 : end.is_free_ns) +
                     network_.options_.max_latency_ns;
  say(which, [](End& to) { to.peer_left = true; });
}

void Wire::tell_fault(std::size_t which, std::uint64_t word) {
  say(which, [word](End& to) {
    if (to.peer_fault == 0) to.peer_fault = word;
  });
}

void Wire::end_by_death(std::size_t dead) {
  sys::Simulation& simulation = network_.simulation_;
  const std::int64_t time_ns = arrival_ns(dead, 0);
  if (time_ns == sys::no_deadline_ns) return;
  simulation.at(time_ns, [wire = shared_from_this(), dead] {
    wire->ends_[1 - dead].peer_died = true;
    wire->wake(1 - dead);
  });
}

}  // namespace unisono::transport::emulated
