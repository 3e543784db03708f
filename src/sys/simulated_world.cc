#include "sys/simulated_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>

#include "base/error.h"
#include "base/try.h"
#include "sys/waiting_room.h"

namespace unisono::sys {
namespace {

// One direction of a connection, as its reader sees it.
struct Pipe {
  std::deque<std::byte> arrived;
  bool has_ended = false;  // the writer closed, and all it wrote has arrived
  bool is_broken = false;  // reset
  std::int64_t last_arrival_ns = 0;
  std::size_t unread_bytes = 0;  // arrived or on their way
  int being_taken = 0;           // that the reader's processor is still busy with
  WaitQueue changed;
  WaitQueue taken;                // for the writer
  WaitQueue* listener = nullptr;  // notified, too, while its reader waits at a gate

  // Moves what has arrived into the buffer, which it fills if there is enough.
  std::size_t take(std::span<std::byte> buffer) {
    const std::size_t count = std::min(buffer.size(), arrived.size());
    const auto end = arrived.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(arrived.begin(), end, buffer.begin());
    arrived.erase(arrived.begin(), end);
    unread_bytes -= count;
    taken.notify_all();
    return count;
  }
  void notify_all() {
    changed.notify_all();
    if (listener != nullptr) listener->notify_all();
  }
};

struct Connection {
  std::uint64_t number = 0;
  std::array<Pipe, 2> pipes;  // pipes[i] is read by end i
  std::array<bool, 2>
      is_silent{};  // that end's host is lost: nothing leaves it, nothing reaches it
  std::array<SimulatedWorld*, 2> worlds{};
};

constexpr std::size_t most_per_write_bytes = 65536;

}  // namespace

class SimulatedStream final : public Stream {
 public:
  SimulatedStream(SimulatedWorld& world, std::shared_ptr<Connection> connection, std::size_t end,
                  Address local, Address peer)
      : world_(world),
        connection_(std::move(connection)),
        end_(end),
        local_(std::move(local)),
        peer_(std::move(peer)),
        number_(++world.simulation_.last_connection_) {
    connection_->worlds[end_] = &world_;
    world_.open_connection();
    world_.streams_.emplace(number_, this);
  }
  ~SimulatedStream() override {
    close();
    world_.streams_.erase(number_);
  }

  Task<Result<std::size_t>> read_some(std::span<std::byte> buffer,
                                      std::int64_t deadline_ns) override {
    Pipe& pipe = connection_->pipes[end_];
    world_.simulation_.reach(world_.process_, "control.read");
    for (;;) {
      if (is_closed_) co_return environment_error("this side has closed the connection");
      if (pipe.is_broken) co_return system_error(str("reading from ", peer_.text()), ECONNRESET);
      if (!pipe.arrived.empty()) co_return pipe.take(buffer);
      if (pipe.has_ended) co_return std::size_t{0};
      Wait wait(world_.scheduler(), pipe.changed, deadline_ns);
      const bool notified = co_await wait;
      if (!notified)
        co_return timeout_error(-1, "received nothing from ", peer_.text(), " in time");
    }
  }

  Task<Result<std::size_t>> write_some(std::span<const std::byte> bytes,
                                       std::int64_t deadline_ns) override {
    const Pipe& own = connection_->pipes[end_];
    Pipe& theirs = connection_->pipes[1 - end_];
    for (;;) {
      if (is_closed_) co_return environment_error("this side has closed the connection");
      if (own.is_broken || own.has_ended)
        co_return system_error(str("writing to ", peer_.text()),
                               own.is_broken ? ECONNRESET : EPIPE);
      if (theirs.unread_bytes < world_.simulation_.options_.most_unread_bytes)
        co_return write_now(bytes);
      Wait wait(world_.scheduler(), theirs.taken, deadline_ns);
      const bool notified = co_await wait;
      if (!notified) co_return timeout_error(-1, peer_.text(), " accepted no data in time");
    }
  }

  std::size_t write_now(std::span<const std::byte> bytes) override {
    Simulation& simulation = world_.simulation_;
    const Pipe& own = connection_->pipes[end_];
    simulation.reach(world_.process_, "control.write");
    if (is_closed_ || own.is_broken || own.has_ended || !world_.is_alive_) return 0;
    const std::size_t count = std::min(bytes.size(), most_per_write_bytes);
    if (simulation.draw(simulation.options_.break_probability)) {
      for (const std::size_t end : {0, 1})
        arrive(end, 0, [](Pipe& pipe) { pipe.is_broken = true; });
      return count;
    }
    std::uint64_t what = connection_->number;
    for (const std::byte byte : bytes.first(std::min<std::size_t>(count, 64)))
      what = what * 131 + std::to_integer<std::uint64_t>(byte);
    simulation.note(what);
    simulation.note(count);
    connection_->pipes[1 - end_].unread_bytes += count;
    world_.traffic_.bytes += count;
    SimulatedWorld& peer = *connection_->worlds[1 - end_];
    arrive(1 - end_, world_.cost_of(count),
           [&peer,
            data = std::vector<std::byte>(
                bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count))](Pipe& pipe) {
             pipe.arrived.insert(pipe.arrived.end(), data.begin(), data.end());
             peer.traffic_.bytes += data.size();
           });
    return count;
  }

  // For the gate.
  void wait_with(WaitQueue* listener) { connection_->pipes[end_].listener = listener; }
  Heard peek(std::byte& first) const {
    const Pipe& pipe = connection_->pipes[end_];
    if (pipe.arrived.empty()) return pipe.has_ended || pipe.is_broken ? Heard::end : Heard::not_all;
    first = pipe.arrived.front();
    return Heard::all;
  }
  Heard hear(std::span<std::byte> buffer) {
    Pipe& pipe = connection_->pipes[end_];
    if (pipe.arrived.size() < buffer.size())
      return pipe.has_ended || pipe.is_broken ? Heard::end : Heard::not_all;
    pipe.take(buffer);
    return Heard::all;
  }

  void close() override {
    if (is_closed_) return;
    world_.simulation_.reach(world_.process_, "control.close");
    is_closed_ = true;
    connection_->pipes[end_].changed.notify_all();
    connection_->pipes[1 - end_].taken.notify_all();
    connection_->pipes[end_].listener = nullptr;
    --world_.traffic_.connections;
    if (world_.is_host_lost_) connection_->is_silent[end_] = true;
    arrive(1 - end_, 0, [](Pipe& pipe) { pipe.has_ended = true; });
  }

  const Address& local_address() const override { return local_; }
  const Address& peer_address() const override { return peer_; }

 private:
  // Something happens to what `reader` reads, after a delay and after all that was sent before.
  // Both ends spend the cost on it.
  void arrive(std::size_t reader, std::int64_t cost_ns, std::function<void(Pipe&)> change) {
    if (connection_->is_silent[end_]) return;
    Simulation& simulation = world_.simulation_;
    Pipe& pipe = connection_->pipes[reader];
    const std::int64_t opens_ns = std::max(
        simulation.cut_until_ns(connection_->worlds[0]->process_, connection_->worlds[1]->process_),
        connection_->worlds[reader]->stopped_until_ns_);
    if (opens_ns == no_deadline_ns) return;
    pipe.last_arrival_ns =
        std::max({pipe.last_arrival_ns, simulation.after_delay(world_.spend(cost_ns)), opens_ns});
    auto take = [connection = connection_, reader, change = std::move(change)] {
      change(connection->pipes[reader]);
      connection->pipes[reader].notify_all();
      connection->pipes[1 - reader].taken.notify_all();
    };
    SimulatedWorld& taker = *connection_->worlds[reader];
    simulation.schedule(
        pipe.last_arrival_ns,
        [&simulation, &taker, cost_ns, connection = connection_, reader, take = std::move(take)] {
          const std::int64_t ready_ns = taker.spend(cost_ns);
          // What ends at this very moment keeps its place before this.
          int& being_taken = connection->pipes[reader].being_taken;
          if (ready_ns == simulation.now_ns_ && being_taken == 0) return take();
          ++being_taken;
          simulation.schedule(ready_ns, [connection, reader, take] {
            --connection->pipes[reader].being_taken;
            take();
          });
        });
  }

  SimulatedWorld& world_;
  const std::shared_ptr<Connection> connection_;
  const std::size_t end_;
  const Address local_;
  const Address peer_;
  const std::uint64_t number_;
  bool is_closed_ = false;
};

// A connection at the gate.
struct AtTheGate {
  std::unique_ptr<SimulatedStream> stream;

  bool tell(std::span<const std::byte> bytes) { return stream->write_now(bytes) == bytes.size(); }
  Heard peek(std::byte& first) const { return stream->peek(first); }
  Heard hear(std::span<std::byte> buffer) { return stream->hear(buffer); }
  std::string host() const { return stream->peer_address().host; }
};

class SimulatedListener final : public Listener {
 public:
  SimulatedListener(SimulatedWorld& world, Address address)
      : world_(world), address_(std::move(address)), number_(++world.simulation_.last_connection_) {
    world_.simulation_.listeners_[address_.text()] = this;
    world_.listeners_.emplace(number_, this);
  }
  ~SimulatedListener() override { close(); }

  void close() {
    if (world_.listeners_.erase(number_) == 0) return;
    world_.simulation_.listeners_.erase(address_.text());
    if (world_.is_host_lost_) world_.simulation_.lost_addresses_.insert(address_.text());
  }

  const Address& address() const override { return address_; }
  SimulatedWorld& world() { return world_; }

  Task<Result<Admitted>> admit(const Gate& gate, std::int64_t deadline_ns) override {
    for (;;) {
      for (; !backlog_.empty(); backlog_.pop_front()) {
        SimulatedStream& stream = *backlog_.front();
        stream.wait_with(&changed_);
        room_.add(gate, {std::move(backlog_.front())}, world_.now_ns());
      }
      for (const std::uint64_t number : room_.numbers())
        if (auto passed = room_.look(gate, number, world_.now_ns())) {
          passed->connection.stream->wait_with(nullptr);
          world_.simulation_.reach(world_.process_, "control.admit");
          co_return Admitted{std::move(passed->connection.stream), number,
                             std::move(passed->answer)};
        }
      room_.expire(gate, world_.now_ns());
      const std::int64_t until_ns = std::min(deadline_ns, room_.next_deadline_ns());
      Wait wait(world_.scheduler(), changed_, until_ns);
      const bool notified = co_await wait;
      if (!notified && until_ns == deadline_ns)
        co_return timeout_error(-1, "nobody connected to ", address_.text());
    }
  }

  void push(std::unique_ptr<SimulatedStream> stream) {
    backlog_.push_back(std::move(stream));
    changed_.notify_all();
  }

 private:
  SimulatedWorld& world_;
  const Address address_;
  const std::uint64_t number_;
  WaitQueue changed_;  // before the room, whose streams notify it
  std::deque<std::unique_ptr<SimulatedStream>> backlog_;
  WaitingRoom<AtTheGate> room_;
};

void SimulatedWorld::cut_off() {
  while (!listeners_.empty()) listeners_.begin()->second->close();
  for (const auto& [number, stream] : std::map(streams_)) stream->close();
}

Result<std::unique_ptr<Listener>> SimulatedWorld::listen(const Address& address) {
  simulation_.reach(process_, "control.listen");
  Address got = address;
  if (is_name_of_host(address)) {
    got.host += host_;
    if (simulation_.listeners_.contains(got.text()))
      return environment_error("the name ", address.host, " is in use on ", host_);
    return std::unique_ptr<Listener>(std::make_unique<SimulatedListener>(*this, got));
  }
  // Processes of a host share its ports.
  while (got.port == 0 || (address.port == 0 && simulation_.listeners_.contains(got.text())))
    got.port = next_port_++;
  if (simulation_.listeners_.contains(got.text()))
    return environment_error("port ", got.port, " on ", got.host, " is in use");
  return std::unique_ptr<Listener>(std::make_unique<SimulatedListener>(*this, got));
}

Task<Result<std::unique_ptr<Stream>>> SimulatedWorld::connect(const Address& to,
                                                              std::int64_t deadline_ns) {
  Address address = to;
  if (is_name_of_host(to)) address.host += host_;
  struct Attempt {
    bool is_refused = false;
    bool is_given_up = false;
    std::unique_ptr<Stream> stream;
    WaitQueue changed;
  };
  // Events hold the attempt for longer than the task that waits for it, which may be cancelled.
  struct Claim {
    std::shared_ptr<Attempt> attempt;
    ~Claim() {
      attempt->is_given_up = true;
      attempt->stream.reset();
    }
  };
  simulation_.reach(process_, "control.connect");
  auto attempt = std::make_shared<Attempt>();
  const Claim claim{attempt};
  const bool is_unlucky = simulation_.draw(simulation_.options_.refuse_probability);
  const Address own{host_, next_port_++};
  const std::int64_t cost_ns = simulation_.options_.costs.connection_ns;
  ++traffic_.attempts;
  const auto find = [this, address] {
    const auto found = simulation_.listeners_.find(address.text());
    return found == simulation_.listeners_.end() ? nullptr : found->second;
  };
  const auto arrive = [this, attempt, address, own, is_unlucky, find] {
    if (simulation_.lost_addresses_.contains(address.text())) return;
    SimulatedListener* const listener = find();
    std::unique_ptr<Stream> stream;
    if (is_alive_ && !is_unlucky && listener != nullptr) {
      auto connection = std::make_shared<Connection>();
      connection->number = ++simulation_.last_connection_;
      SimulatedWorld& peer = listener->world();
      if (simulation_.cut_until_ns(process_, peer.process_) > simulation_.now_ns_) return;
      connection->worlds = {this, &peer};
      auto theirs = std::make_unique<SimulatedStream>(peer, connection, 1, address, own);
      stream = std::make_unique<SimulatedStream>(*this, connection, 0, own, address);
      listener->push(std::move(theirs));
    }
    // std::function copies what it holds, so the stream travels in the shared attempt. One that
    // nothing waits for is closed here.
    if (attempt->is_given_up) return;
    attempt->stream = std::move(stream);
    simulation_.schedule(simulation_.after_delay(simulation_.now_ns_), [attempt] {
      attempt->is_refused = attempt->stream == nullptr;
      attempt->changed.notify_all();
    });
  };
  simulation_.schedule(simulation_.after_delay(spend(cost_ns)), [this, cost_ns, find, arrive] {
    SimulatedListener* const listener = find();
    const std::int64_t ready_ns =
        listener == nullptr ? simulation_.now_ns_ : listener->world().spend(cost_ns);
    if (ready_ns > simulation_.now_ns_)
      simulation_.schedule(ready_ns, arrive);
    else
      arrive();
  });
  Wait wait(scheduler(), attempt->changed, deadline_ns);
  const bool notified = co_await wait;
  if (!notified) co_return timeout_error(-1, "connecting to ", address.text(), " took too long");
  if (attempt->is_refused)
    co_return system_error(str("connecting to ", address.text()), ECONNREFUSED);
  co_return std::move(attempt->stream);
}

Result<std::string> SimulatedWorld::read_file(const std::string& path, std::size_t most_bytes,
                                              bool) {
  const auto found = simulation_.files_.find(path);
  if (found == simulation_.files_.end()) return system_error(str("cannot open ", path), ENOENT);
  if (found->second.size() > most_bytes)
    return environment_error(path, " is longer than the ", most_bytes, " bytes it may have");
  return found->second;
}

Result<std::shared_ptr<std::byte>> SimulatedWorld::share_memory(const std::string& name,
                                                                std::size_t bytes) {
  std::shared_ptr<PrivateMemory>& known = simulation_.shared_memory_[{host_, name}];
  if (!known) {
    UNISONO_ASSIGN(auto made, PrivateMemory::allocate(bytes));
    known = std::make_shared<PrivateMemory>(std::move(made));
  }
  if (known->bytes() < bytes)
    return bug("two sizes of the shared memory ", name, ": ", known->bytes(), " and ", bytes);
  return std::shared_ptr<std::byte>(known, known->data());
}

Status SimulatedWorld::publish_file(const std::string& path, std::string_view content) {
  simulation_.files_[path] = content;
  return {};
}

}  // namespace unisono::sys
