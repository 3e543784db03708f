// An invitation's text says where the process that made it listens, and which invitation it is.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "sys/world.h"

namespace unisono::comm {

struct InvitationPlace {
  sys::Address address;
  std::uint64_t number = 0;
};

bool is_invitation(std::string_view rendezvous);
// The text must be one for which is_invitation() is true.
Result<InvitationPlace> parse_invitation(std::string_view text);
std::string print_invitation(const InvitationPlace& place);

}  // namespace unisono::comm
