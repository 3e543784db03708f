#include "comm/join/invitation_place.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace unisono::comm {
namespace {

constexpr std::string_view invitation_scheme = "meet://";
constexpr std::size_t number_digits = 16;

}  // namespace

bool is_invitation(std::string_view rendezvous) {
  return rendezvous.starts_with(invitation_scheme);
}

Result<InvitationPlace> parse_invitation(std::string_view text) {
  const std::string_view rest = text.substr(invitation_scheme.size());
  const auto slash = rest.rfind('/');
  InvitationPlace place;
  if (slash != std::string_view::npos) {
    const std::string_view digits = rest.substr(slash + 1);
    const char* end = digits.data() + digits.size();
    const auto number = std::from_chars(digits.data(), end, place.number, 16);
    auto address = sys::Address::parse(rest.substr(0, slash));
    if (address.ok() && digits.size() == number_digits && number.ec == std::errc{} &&
        number.ptr == end) {
      place.address = *address;
      return place;
    }
  }
  // No part of it is shown: a handle that was taken for an invitation has a secret in it.
  return misuse("cannot read an invitation of ", text.size(),
                " characters; it is meet://host:port/number with ", number_digits,
                " hexadecimal digits");
}

std::string print_invitation(const InvitationPlace& place) {
  std::array<char, number_digits> digits;
  digits.fill('0');
  std::array<char, number_digits> got;
  const auto end = std::to_chars(got.data(), got.data() + got.size(), place.number, 16);
  std::copy_backward(got.data(), end.ptr, digits.end());
  return str(invitation_scheme, place.address.text(), "/",
             std::string_view(digits.data(), digits.size()));
}

}  // namespace unisono::comm
