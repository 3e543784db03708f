#include "sys/world.h"

#include <charconv>

#include "base/error.h"

namespace unisono::sys {

std::string Address::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? str('[', host, "]:", port) : str(host, ':', port);
}

Result<Address> Address::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return misuse("'", text, "' has no port; write host:port, as in 10.0.0.1:29500");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return misuse("'", text,
                  "' is ambiguous; write an IPv6 address in brackets, as in [::1]:29500");
  if (host.empty()) return misuse("'", text, "' has no host; write host:port");
  int port = -1;
  const char* end = port_text.data() + port_text.size();
  const auto parsed = std::from_chars(port_text.data(), end, port);
  if (parsed.ec != std::errc{} || parsed.ptr != end || port < 0 || port > 65535)
    return misuse("'", port_text, "' in '", text, "' is not a port; ports are 0 to 65535");
  return Address{std::string(host), port};
}

bool Address::is_loopback() const {
  const bool is_numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || host.starts_with("::ffff:127.") ||
         (is_numeric && host.starts_with("127."));
}

bool stays_on_host(const Address& local, const Address& peer) {
  return local.is_loopback() && peer.is_loopback();
}

Task<Status> read_exactly(Stream& stream, std::span<std::byte> buffer, std::int64_t deadline_ns) {
  while (!buffer.empty()) {
    Result<std::size_t> got = co_await stream.read_some(buffer, deadline_ns);
    if (!got.ok()) co_return got.take_error();
    if (*got == 0) co_return environment_error("the peer closed the connection");
    buffer = buffer.subspan(*got);
  }
  co_return Status();
}

Task<Status> write_all(Stream& stream, std::span<const std::byte> bytes, std::int64_t deadline_ns) {
  while (!bytes.empty()) {
    Result<std::size_t> taken = co_await stream.write_some(bytes, deadline_ns);
    if (!taken.ok()) co_return taken.take_error();
    bytes = bytes.subspan(*taken);
  }
  co_return Status();
}

}  // namespace unisono::sys
