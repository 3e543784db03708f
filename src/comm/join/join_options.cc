// What a rank may be told of the job that it joins.

#include "base/error.h"
#include "base/try.h"
#include "comm/join/join.h"

namespace unisono::comm {

Result<RendezvousPlace> parse_rendezvous(std::string_view text) {
  constexpr std::string_view tcp = "tcp://";
  constexpr std::string_view file = "file://";
  RendezvousPlace out;
  if (text.starts_with(tcp)) {
    UNISONO_ASSIGN(out.address, sys::Address::parse(text.substr(tcp.size())));
    return out;
  }
  if (text.starts_with(file) && text.substr(file.size()).starts_with('/')) {
    out.is_file = true;
    out.path = text.substr(file.size());
    return out;
  }
  return misuse("cannot read the rendezvous '", text,
                "'; write tcp://host:port or file:///absolute/path");
}

Error cannot_join(int rank, std::string_view why) {
  return peer_error(rank, "rank ", rank, " cannot join: ", why);
}

Status check_options(const BootstrapOptions& options, std::size_t common_bytes) {
  if (options.world_size < 1)
    return misuse("the number of ranks is ", options.world_size, "; it must be at least 1");
  if (options.rank < 0 || options.rank >= options.world_size)
    return misuse("the rank is ", options.rank, "; it must be 0 to ", options.world_size - 1);
  if (common_bytes > max_common_bytes)
    return misuse("rank ", options.rank, " compares ", common_bytes,
                  " bytes with the other ranks; at most ", max_common_bytes, " are allowed");
  if (options.timeout_ns <= 0)
    return misuse("the bootstrap's timeout is ", options.timeout_ns, " ns; it must be positive");
  if (options.world_size > 1) {
    const auto place = parse_rendezvous(options.rendezvous);
    if (!place.ok()) return place.error();
  }
  return {};
}

}  // namespace unisono::comm
