#include "transport/table.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "transport/interpose/transport.h"
#include "transport/ofi/transport.h"
#include "transport/shm/transport.h"
#include "transport/socket/transport.h"

namespace unisono::transport {
namespace {

constexpr std::size_t most_name_bytes = 32;

constexpr TransportRow table[]{
    {.name = "shm",
     .reach = Reach::host,
     .is_default = true,
     .protects = sys::Protection::none,
     .reads_peers = true,
     .make = shm::make_transport,
     .probe = shm::probe},
    {.name = "socket",
     .reach = Reach::network,
     .is_default = true,
     .protects = sys::Protection::encrypt,
     .reads_peers = false,
     .make = socket::make_transport,
     .probe = socket::probe},
    // Libfabric writes to memory as data arrive, without a check.
    {.name = "ofi",
     .reach = Reach::network,
     .is_default = false,
     .protects = sys::Protection::none,
     .reads_peers = false,
     .make = ofi::make_transport,
     .probe = ofi::probe},
};
static_assert(std::size(table) <= TransportSet::most);

bool reaches(const TransportRow& row, Nearness near) {
  return row.reach == Reach::network || near.is_same_host;
}

// Ranks of one host that call themselves two nodes want to be treated as such.
bool is_taken_unasked(const TransportRow& row, Nearness near) {
  return row.is_default &&
         (row.reach == Reach::network || (near.is_same_host && near.is_same_node));
}

Status check_protection(const TransportRow& row, sys::Protection asked) {
  if (row.reach != Reach::network || asked <= row.protects) return {};
  std::string able;
  for (const TransportRow& other : table)
    if (other.reach == Reach::network && asked <= other.protects)
      able += str(able.empty() ? "UNISONO_TRANSPORT=" : " or ", other.name);
  return misuse("UNISONO_WIRE=", sys::name(asked), " and the transport ", row.name,
                " exclude each other: the most that it does for data between hosts is ",
                sys::name(row.protects), "; use ", able,
                ", or UNISONO_WIRE=", sys::name(row.protects), " where the network is trusted");
}

}  // namespace

std::span<const TransportRow> transport_table() { return table; }

Status check_transport_name(std::string_view named) {
  if (named.empty()) return {};
  std::string names;
  for (const TransportRow& row : table) {
    if (row.name == named) return {};
    names += str(names.empty() ? "" : &row == std::end(table) - 1 ? " or " : ", ", row.name);
  }
  return misuse("there is no transport '", named, "'; write ", names, ", or leave it empty");
}

std::string_view usual_transport(std::string_view named, bool is_same_node) {
  if (!named.empty()) return named;
  const Nearness near{.is_same_host = is_same_node, .is_same_node = is_same_node};
  return std::ranges::find_if(table, [&](const auto& row) { return is_taken_unasked(row, near); })
      ->name;
}

bool reads_peers(std::string_view named) {
  return std::ranges::any_of(table, [&](const TransportRow& row) {
    return row.reads_peers && (named.empty() ? row.is_default : row.name == named);
  });
}

void Contact::write(WireWriter& writer) const {
  writer.text(named);
  writer.number(static_cast<std::uint32_t>(entries.size()));
  for (const Entry& entry : entries) {
    writer.text(entry.transport);
    writer.text(entry.address);
  }
}

Contact Contact::read(WireReader& reader) {
  Contact out;
  out.named = reader.text(most_name_bytes);
  const auto count = reader.number<std::uint32_t>();
  // Every entry has two lengths at least.
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    Entry entry;
    entry.transport = reader.text(most_name_bytes);
    entry.address = reader.text(Transport::max_address_bytes);
    out.entries.push_back(std::move(entry));
  }
  return reader.ok() ? out : Contact{};
}

const std::string* Contact::address_in(std::string_view transport) const {
  const auto found = std::ranges::find(entries, transport, &Entry::transport);
  return found == entries.end() ? nullptr : &found->address;
}

Result<TransportSet> TransportSet::make(const TransportOptions& options, std::string_view named,
                                        const MakeTransport& make_network) {
  TransportSet set;
  set.named_ = named;
  for (const TransportRow& row : table) {
    if (!row.is_default && row.name != named) continue;
    if (make_network && row.reach != Reach::network) continue;
    if (!make_network) UNISONO_TRY(check_protection(row, options.protection));
    UNISONO_ASSIGN(auto made, make_network ? make_network(options) : row.make(options));
    if (options.delay_ns > 0 && row.reach == Reach::network)
      made = interpose::make_transport(
          std::move(made), {.min_delay_ns = options.delay_ns, .max_delay_ns = options.delay_ns});
    if (const int descriptor = made->event_descriptor(); descriptor >= 0)
      set.event_descriptors_.push_back(descriptor);
    set.made_.push_back({&row, std::move(made)});
  }
  return set;
}

const TransportSet::Made* TransportSet::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(made_, [&](const Made& one) { return one.row->name == name; });
  return found == made_.end() ? nullptr : &*found;
}

Contact TransportSet::contact() const {
  Contact out{.named = named_, .entries = {}};
  for (const Made& one : made_)
    out.entries.push_back({std::string(one.row->name), one.transport->address()});
  return out;
}

Result<Route> TransportSet::route_to(int rank, const Contact& theirs, Nearness near) const {
  if (!named_.empty() && !theirs.named.empty() && named_ != theirs.named)
    return misuse("this rank was told to use the transport '", named_, "' and rank ", rank, " '",
                  theirs.named, "'; set UNISONO_TRANSPORT to one name on all ranks, or on none");
  const std::string& named = named_.empty() ? theirs.named : named_;
  if (named.empty()) {
    for (const Made& one : made_)
      if (is_taken_unasked(*one.row, near))
        if (const std::string* address = theirs.address_in(one.row->name))
          return Route{one.transport.get(), *address};
    return environment_error("no transport joins this rank and rank ", rank);
  }
  const Made* mine = find(named);
  if (mine == nullptr)
    return misuse("rank ", rank, " was told to use the transport '", named,
                  "', which this rank was not; set UNISONO_TRANSPORT=", named,
                  " on all ranks, or on none");
  const std::string* address = theirs.address_in(named);
  if (address == nullptr)
    return misuse("this rank was told to use the transport '", named, "', which rank ", rank,
                  " does not have; set UNISONO_TRANSPORT=", named, " on all ranks, or on none");
  if (!reaches(*mine->row, near))
    return misuse("this rank was told to use the transport '", named,
                  "', which joins ranks of one host; rank ", rank, " is on another host");
  return Route{mine->transport.get(), *address};
}

Transport& TransportSet::on_host() const { return *made_.front().transport; }

const std::string* TransportSet::address_on_host(const Contact& theirs) const {
  return theirs.address_in(made_.front().row->name);
}

}  // namespace unisono::transport
