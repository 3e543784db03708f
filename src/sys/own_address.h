// The address of this host that the other ranks of a job reach it by.
#pragma once

#include <string>
#include <string_view>

namespace unisono::sys {

struct OwnAddress {
  std::string host;  // numeric
  std::string why;   // "its address on the way to node0"
  bool is_certain = true;
};

// An address, IPv4 or IPv6, by the first of these rules that finds one:
//   1. The host that the ranks meet at is known: this host's own address on the way to it. That is
//      `towards`, a name or an address; where it is empty, MASTER_ADDR, unless that is loopback.
//      The name of this host that only stands for a loopback address, as Debian's 127.0.1.1, says
//      nothing of the way to other hosts.
//   2. This host's address on its default route, of IPv4 and then of IPv6.
//   3. The first address of an interface that is up and connected. Bridges, which most often lead
//      to containers alone, and then interfaces without a carrier come last; IPv4 comes before
//      global IPv6.
//   4. 127.0.0.1.
// Rule 4, and a choice between several interfaces, are not certain.
OwnAddress find_own_address(std::string_view towards = {});
// The same for a rank that listens there, which is logged: as a warning where it is not certain.
std::string own_address(std::string_view towards = {});

// Whether it is the name of this host; "localhost" is not.
bool is_own_name(std::string_view host);

}  // namespace unisono::sys
