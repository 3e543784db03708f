// The table of transports, and which of them two ranks use with each other.
//
// A new transport is a folder beside this file and a row in table.cc. A rank makes what the table
// says and tells all others its contact: an address in each transport that it has. Two ranks use
// the best transport that both have and that reaches from one to the other, or the one that either
// was told to use. Both ends decide by the same facts, so they agree without asking.
#pragma once

#include <unisono/result.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::transport {

using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const TransportOptions&)>;

// Which ranks a transport joins.
enum class Reach : std::uint8_t {
  host,     // processes, or threads of one, that see the same /dev/shm
  network,  // all ranks
};

struct TransportRow {
  std::string_view name;
  Reach reach;
  // Made without being asked for. Others are made, and used, only where they are named.
  bool is_default;
  // The most that it can do for data between hosts; nobody makes it where more is asked for. Data
  // inside a host are on no wire.
  sys::Protection protects;
  // Whether ranks of one host may read each other's memory: Connection::can_read_peer().
  bool reads_peers;
  Result<std::unique_ptr<Transport>> (*make)(const TransportOptions& options);
  // How it works on this machine, for a person; the error says why it does not.
  Result<std::string> (*probe)(const Settings& settings);
};

// The best first.
std::span<const TransportRow> transport_table();
// Misuse that lists the names, unless `named` is one of them or empty.
Status check_transport_name(std::string_view named);
// What the ranks of one node, or of two, use where all have everything.
std::string_view usual_transport(std::string_view named, bool is_same_node);

// Whether ranks of one node may read each other's memory where all use `named`, or none is named.
bool reads_peers(std::string_view named);

// What a rank tells the others.
struct Contact {
  struct Entry {
    std::string transport;
    std::string address;  // opaque, Transport::address()
  };
  std::string named;  // the transport that it was told to use, if any
  std::vector<Entry> entries;

  void write(WireWriter& writer) const;
  // Empty, and the reader not ok(), where it cannot be read.
  static Contact read(WireReader& reader);
  // nullptr where that rank has no such transport.
  const std::string* address_in(std::string_view transport) const;
};

// Where a peer is, seen from this rank.
struct Nearness {
  bool is_same_host = false;
  bool is_same_node = false;
};

// How one rank reaches another.
struct Route {
  Transport* transport = nullptr;
  std::string address;  // the peer's
};

// The transports that one rank has made.
class TransportSet {
 public:
  TransportSet() = default;
  // The default ones, and `named`, which must be in the table or empty. Misuse where one of them
  // cannot protect data as the options ask.
  // `make_network`, if given, stands for the table's transports between hosts; then there are no
  // others.
  static Result<TransportSet> make(const TransportOptions& options, std::string_view named,
                                   const MakeTransport& make_network = {});

  Contact contact() const;
  // Misuse where the ranks were told to use different transports, or one that cannot join them.
  Result<Route> route_to(int rank, const Contact& theirs, Nearness near) const;
  // The best one inside a host, and a peer's address in it: what connections between GPUs are made
  // over.
  Transport& on_host() const;
  const std::string* address_on_host(const Contact& theirs) const;
  // All that there are, to sleep on.
  const std::vector<int>& event_descriptors() const { return event_descriptors_; }

  static constexpr std::size_t most = 8;

 private:
  struct Made {
    const TransportRow* row;
    std::unique_ptr<Transport> transport;
  };
  const Made* find(std::string_view name) const;

  std::string named_;
  std::vector<Made> made_;  // in the table's order
  std::vector<int> event_descriptors_;
};

}  // namespace unisono::transport
