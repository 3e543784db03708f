// The way of a message: slot, port, network, port, receiver, and the slot back.
#include <algorithm>

#include "simulate/executor.h"

namespace unisono::simulate {
namespace {

// A number of [0, 1) that depends on these three alone (splitmix64's mixing).
double draw(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = seed ^ (a * 0x9e3779b97f4a7c15) ^ (b * 0xd1b54a32d192ed03);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-53;
}

}  // namespace

std::uint32_t Executor::new_message(std::uint32_t connection, std::int64_t wire_bytes, Time sent) {
  std::uint32_t number = free_message_;
  if (number != none) {
    free_message_ = messages_[number].next;
  } else {
    number = static_cast<std::uint32_t>(messages_.size());
    messages_.emplace_back();
    if (options_.explain) message_paths_.emplace_back();
  }
  messages_[number] = {0, sent, wire_bytes, none, connection};
  ++live_messages_;
  result_.pending_messages = std::max(result_.pending_messages, live_messages_);
  return number;
}

void Executor::free_first(Connection& connection) {
  const std::uint32_t freed = connection.first;
  connection.first = messages_[freed].next;
  if (connection.first == none) connection.last = none;
  --connection.count;
  messages_[freed].next = free_message_;
  free_message_ = freed;
  --live_messages_;
}

// Takes back slots that are free by now. False, and the thread block goes on later, if none is.
bool Executor::get_slot(std::uint32_t number, Time now) {
  Connection& out = connections_[threads_[number].out];
  while (out.first != out.unreleased && messages_[out.first].time <= now) free_first(out);
  if (out.count < static_cast<std::uint32_t>(machine_.slots)) return true;
  if (out.first == out.unreleased) {
    threads_[number].wait = Wait::slot;
    out.sender_waits = true;
    return false;
  }
  wait_for(number, out.first);
  schedule(number, threads_[number].time, Stage::send);
  return false;
}

// When the message leaves the sender's port, which it holds from then on.
Time Executor::leave_port(std::uint32_t number, Time now, std::int64_t wire_bytes) {
  const Connection& out = connections_[threads_[number].out];
  PortUse& use = ports_[out.send_port];
  use.bytes_sent += wire_bytes;
  result_.bytes += wire_bytes;
  if (options_.model != NetworkModel::log_gops) return now;
  const Way& way = ways_[out.way];
  Time& free = send_free_[out.send_port];
  free = std::max(free, now - way.burst);
  const Time leaves = std::max(now, free);
  const Time busy = way.gap + transfer_time(way.port_ps_per_byte, beyond_first(wire_bytes));
  free += busy;
  use.sending += busy;
  charge(number, Share::queue, leaves - now);
  return leaves;
}

Time Executor::latency_of(std::uint32_t number) {
  Connection& connection = connections_[number];
  const Time latency = ways_[connection.way].latency;
  const std::uint32_t sent = connection.sent++;
  if (options_.noise <= 0) return latency;
  return latency +
         transfer_time(options_.noise * draw(options_.seed, connection.key, sent), latency);
}

// The message of the current step is on its way from `leaves` on.
void Executor::launch(std::uint32_t number, Time leaves, std::int64_t wire_bytes) {
  const std::uint32_t to = threads_[number].out;
  Connection& out = connections_[to];
  const Way& way = ways_[out.way];
  const std::uint32_t message = new_message(to, wire_bytes, leaves);
  if (out.last != none) messages_[out.last].next = message;
  out.last = message;
  for (std::uint32_t* first :
       {&out.first, &out.unreleased, &out.untaken, &out.undelivered, &out.unstarted})
    if (*first == none) *first = message;
  ++out.count;
  ++result_.messages;
  const Time latency = latency_of(to);
  if (options_.explain) {
    Path& path = message_paths_[message];
    path = paths_[number];
    path.shares[static_cast<std::size_t>(Share::overhead)] += way.send_overhead;
    path.shares[static_cast<std::size_t>(Share::latency)] += latency;
  }
  if (options_.model == NetworkModel::flows) {
    messages_[message].time = latency;  // until it arrives
    queue_.push({leaves + way.send_overhead, key_of(Kind::inject, out.from, message)});
    return;
  }
  if (way.burst > 0)
    messages_[message].time =
        std::max(leaves, send_free_[out.send_port]) + way.send_overhead + latency;
  out.last_arrival = std::max(out.last_arrival, leaves + way.send_overhead + latency);
  // By receiver: the order of equal times then follows the ranks.
  const std::uint32_t whom = out.receiver == none ? unreceived | to : out.receiver;
  queue_.push({out.last_arrival, key_of(Kind::arrival, out.to, whom)});
}

// The first byte of a connection's next message is at the receiver's port.
void Executor::arrive(std::uint32_t number, Time now) {
  Connection& in = connections_[number];
  const std::uint32_t arrived = in.undelivered;
  Message& message = messages_[arrived];
  const Way& way = ways_[in.way];
  const std::int64_t rest = beyond_first(message.wire_bytes);
  const Time moved = transfer_time(way.wire_ps_per_byte, rest);
  Time ends = now + moved;
  if (options_.model == NetworkModel::log_gops) {
    Time& free = recv_free_[in.recv_port];
    free = std::max(free, now - way.burst);
    ends = std::max(now, free) + moved;
    const Time busy = way.gap + transfer_time(way.port_ps_per_byte, rest);
    free += busy;
    ports_[in.recv_port].receiving += busy;
    // What was sent at once is there at once, unless this port is behind.
    if (way.burst > 0)
      ends = std::max({message.time, free, now + transfer_time(way.thread_ps_per_byte, rest)});
  }
  message.time = ends;
  if (options_.explain) {
    // Noise never lets a message overtake the one before it; what that costs counts as queueing.
    Path& path = message_paths_[arrived];
    const Share slower =
        way.port_ps_per_byte >= way.thread_ps_per_byte ? Share::port : Share::thread_block;
    path.shares[static_cast<std::size_t>(slower)] += std::min(moved, message.time - path.total());
    path.shares[static_cast<std::size_t>(Share::queue)] += message.time - path.total();
  }
  deliver(number, now);
}

void Executor::inject(std::uint32_t number, Time now) {
  messages_[number].ready = true;
  start_flow(messages_[number].connection, now);
}

// A connection's messages go one after another, as a thread block writes them, or a queue pair of a
// NIC sends them.
void Executor::start_flow(std::uint32_t to, Time now) {
  Connection& connection = connections_[to];
  if (connection.flows || connection.unstarted == none || !messages_[connection.unstarted].ready)
    return;
  const std::uint32_t number = connection.unstarted;
  const Message& message = messages_[number];
  connection.flows = true;
  connection.unstarted = message.next;
  const int from = endpoints_[connection.from].node;
  const int at = endpoints_[connection.to].node;
  const Way& way = ways_[connection.way];
  const auto& path = routes_->between({.send_port = connection.send_port,
                                       .recv_port = connection.recv_port,
                                       .from_node = from,
                                       .to_node = at,
                                       .flow = to});
  routes_->network().start(now, number, path, message.wire_bytes, 1000 / way.thread_ps_per_byte);
}

void Executor::end_flow(std::uint32_t number, Time now) {
  Message& ended = messages_[number];
  Connection& in = connections_[ended.connection];
  const Way& way = ways_[in.way];
  const Time latency = ended.time;
  ended.time += now;
  ended.arrived = true;
  in.flows = false;
  start_flow(ended.connection, now);
  if (options_.explain) {
    Path& path = message_paths_[number];
    const Share slower =
        way.port_ps_per_byte >= way.thread_ps_per_byte ? Share::port : Share::thread_block;
    const Time alone =
        std::min(transfer_time(way.wire_ps_per_byte, ended.wire_bytes), ended.time - path.total());
    path.shares[static_cast<std::size_t>(slower)] += alone;
    path.shares[static_cast<std::size_t>(Share::queue)] += ended.time - path.total();
  }
  const std::uint32_t sender = stores_wait(way) ? in.sender : none;
  if (sender != none && options_.explain) {
    paths_[sender] = message_paths_[number];
    paths_[sender].shares[static_cast<std::size_t>(Share::latency)] -= latency;
  }
  // A small message may be faster than the large one before it, but is not seen before.
  while (in.undelivered != none && messages_[in.undelivered].arrived)
    deliver(ended.connection, now);
  if (sender == none) return;
  threads_[sender].time = now;
  finish(sender, now, now);
}

// The connection's next message may be taken, from its time on.
void Executor::deliver(std::uint32_t number, Time now) {
  Connection& in = connections_[number];
  const std::uint32_t delivered = in.undelivered;
  Message& message = messages_[delivered];
  const Time in_order = std::max({message.time, in.last_complete, in.puts_arrived});
  const int from = endpoints_[in.from].shown_rank;
  const bool inter_node = ways_[in.way].inter_node;
  if (options_.explain) {
    Path& path = message_paths_[delivered];
    path.shares[static_cast<std::size_t>(Share::queue)] += in_order - message.time;
    ++path.messages;
    path.messages_inter_node += inter_node ? 1 : 0;
    if (hops_.size() < max_hops) {
      hops_.push_back({path.last_hop, from, endpoints_[in.to].shown_rank, message.wire_bytes,
                       message.sent, in_order});
      path.last_hop = static_cast<std::uint32_t>(hops_.size() - 1);
    } else {
      path.last_hop = no_hop;
    }
  }
  message.time = in.last_complete = in_order;
  in.undelivered = message.next;
  if (options_.timeline != nullptr && in.receiver != none) {
    const Thread& receiver = threads_[in.receiver];
    options_.timeline->arrow(from, in.sender_line, message.sent,
                             endpoints_[receiver.endpoint].shown_rank, line_of(receiver), in_order);
  }
  if (in.receiver == none || threads_[in.receiver].wait != Wait::message) return;
  threads_[in.receiver].wait = Wait::nothing;
  take(in.receiver, now);
}

// The receiver is done with the message that it took last, at `at`.
void Executor::release(std::uint32_t number, std::uint32_t receiver, Time at) {
  Connection& in = connections_[number];
  const std::uint32_t released = in.unreleased;
  Message& message = messages_[released];
  const Time latency = ways_[in.way].latency;
  message.time = at + latency;
  if (options_.explain) {
    message_paths_[released] = paths_[receiver];
    message_paths_[released].shares[static_cast<std::size_t>(Share::latency)] += latency;
  }
  in.unreleased = message.next;
  if (!in.sender_waits) return;
  in.sender_waits = false;
  Thread& sender = threads_[in.sender];
  sender.wait = Wait::nothing;
  wait_for(in.sender, released);
  schedule(in.sender, sender.time, Stage::send);
}

}  // namespace unisono::simulate
