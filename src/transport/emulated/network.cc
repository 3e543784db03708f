#include "transport/emulated/network.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "transport/emulated/wire.h"
#include "transport/request.h"

namespace unisono::transport::emulated {
namespace {

constexpr std::array<std::size_t, 2> ends{0, 1};

}  // namespace

class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(Network& network, int process) : network_(network), process_(process) {}

  std::string_view name() const override { return "emulated"; }
  std::string address() const override { return str(process_); }
  // The world ends a sleep for an event itself.
  int event_descriptor() const override { return 0; }
  Status progress() override { return {}; }

  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    UNISONO_TRY(check_request(request));
    const std::string_view text = request.peer_address;
    int peer = -1;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), peer);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || peer < 0)
      return peer_error(request.peer, "rank ", request.peer, " has the address '", text,
                        "', which no process of the emulated network has");
    return network_.connect(process_, peer, request);
  }

 private:
  Network& network_;
  const int process_;
};

Result<std::unique_ptr<Transport>> Network::make_transport(int process,
                                                           const TransportOptions& options) {
  UNISONO_TRY(check_options(options));
  epochs_[process] = options.epochs;
  return std::unique_ptr<Transport>(std::make_unique<EmulatedTransport>(*this, process));
}

Result<std::unique_ptr<Connection>> Network::connect(int process, int peer_process,
                                                     const ConnectionRequest& request) {
  simulation_.reach(process, "transport.connect");
  const auto [low, high] = std::minmax(process, peer_process);
  const Name name{request.key.communicator, request.key.epoch, request.key.channel, low, high};
  const std::size_t which = process == low ? 0 : 1;
  std::shared_ptr<Wire> wire = wires_[name].lock();
  // One whose peer's end has come and gone is of the past.
  if (!wire || wire->end(1 - which).is_gone) {
    wire = std::make_shared<Wire>(*this, low, high);
    wires_[name] = wire;
  }
  if (wire->end(which).is_joined)
    return misuse("rank ", request.self, " already has a connection to rank ", request.peer, " on ",
                  describe(request.key));
  UNISONO_TRY(wire->join(which, request));
  const auto& epochs = epochs_[peer_process];
  if (epochs && epochs->is_over(request.key.epoch)) wire->refuse(1 - which);
  return make_connection(std::move(wire), which, request);
}

void Network::reset(int process, int other) {
  const auto [low, high] = std::minmax(process, other);
  for (const auto& [name, known] : wires_) {
    const auto wire = known.lock();
    if (!wire || wire->end(0).process != low || wire->end(1).process != high) continue;
    for (const std::size_t which : ends) wire->end_by_death(which);
  }
}

void Network::kill(int process, sys::Death death) {
  simulation_.kill(process, death);
  if (death == sys::Death::host) return;
  for (const auto& [name, known] : wires_)
    if (const auto wire = known.lock())
      for (const std::size_t which : ends)
        if (wire->end(which).process == process && wire->end(which).is_joined)
          wire->end_by_death(which);
}

void Network::interrupt(int process) {
  const std::uint64_t between = options_.puts_between_interrupts;
  if (between > 0 && simulation_.random() % between == 0) simulation_.interrupt(process);
}

int Network::open_ends(std::optional<int> process) const {
  int open = 0;
  for (const auto& [name, known] : wires_)
    if (const auto wire = known.lock())
      for (const std::size_t which : ends) {
        const Wire::End& end = wire->end(which);
        const bool is_meant = process ? end.process == *process : true;
        open += is_meant && end.is_joined && !end.is_gone && simulation_.is_alive(end.process);
      }
  return open;
}

}  // namespace unisono::transport::emulated
