#include "base/fingerprint.h"

#include <map>
#include <mutex>

#include "base/str.h"

namespace unisono {
namespace {

// From the highest bit down: 4 bits of the collective plus 1, 4 of the type, 3 of the operation, 16
// of the root, 1 that says that the count is cut, 34 of the count.
constexpr int count_bits = 34, cut_bits = 1, root_bits = 16, operation_bits = 3, type_bits = 4;
constexpr int cut_shift = count_bits;
constexpr int root_shift = cut_shift + cut_bits;
constexpr int operation_shift = root_shift + root_bits;
constexpr int type_shift = operation_shift + operation_bits;
constexpr int collective_shift = type_shift + type_bits;
constexpr int collective_bits = 4;
static_assert(collective_shift + collective_bits <= 64);
static_assert(collective_count < 1 << collective_bits && data_type_count <= 1 << type_bits &&
              reduce_operation_count <= 1 << operation_bits);

constexpr std::uint64_t low_bits(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

// From the highest bit down: 20 bits of a hash of name and digest, 2 of the protocol, 3 of the
// place, 7 of the number of channels.
constexpr int channels_bits = 7, place_bits = 3, protocol_bits = 2, name_bits = 20;
constexpr int protocol_shift = channels_bits + place_bits;
constexpr int name_shift = protocol_shift + protocol_bits;
static_assert(name_shift + name_bits == 32 && protocol_count <= 1 << protocol_bits);

std::uint64_t place_of(std::uint32_t plan) { return low_bits(plan >> channels_bits, place_bits); }

// It may come from a peer.
std::string_view describe_place(std::uint32_t plan) {
  switch (static_cast<Place>(place_of(plan))) {
    case Place::host:
      return "on the host";
    case Place::device:
      return "on the device";
    case Place::copy_engines:
      return "on copy engines";
    case Place::staged:
      return "on the host for a stream";
    case Place::mixed:
      return "on the device inside nodes";
  }
  return "in an unknown place";
}

// FNV-1a.
std::uint32_t name_hash(std::string_view name, std::uint64_t digest) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint64_t byte) {
    hash ^= byte & 0xff;
    hash *= 0x100000001b3;
  };
  for (const char letter : name) add(static_cast<unsigned char>(letter));
  for (int shift = 0; shift < 64; shift += 8) add(digest >> shift);
  return static_cast<std::uint32_t>(low_bits(hash ^ hash >> 32, name_bits));
}

// For people; a process has one, as it has one log.
struct PlanNames {
  std::mutex mutex;
  std::map<std::uint32_t, std::string> by_hash;
};
PlanNames& plan_names() {
  static auto* const names = new PlanNames;  // outlives what is destroyed at exit
  return *names;
}

}  // namespace

std::uint64_t pack(const Fingerprint& fingerprint) {
  const auto count = static_cast<std::uint64_t>(fingerprint.count);
  const std::uint64_t is_cut = count >> count_bits != 0 ? 1 : 0;
  return (static_cast<std::uint64_t>(fingerprint.collective) + 1) << collective_shift |
         static_cast<std::uint64_t>(fingerprint.type) << type_shift |
         static_cast<std::uint64_t>(fingerprint.operation) << operation_shift |
         low_bits(fingerprint.root, root_bits) << root_shift | is_cut << cut_shift |
         low_bits(count, count_bits);
}

std::string describe_call(std::uint64_t fingerprint) {
  const std::uint64_t number = fingerprint >> collective_shift;
  const std::uint64_t type = low_bits(fingerprint >> type_shift, type_bits);
  const std::uint64_t operation = low_bits(fingerprint >> operation_shift, operation_bits);
  if (number == 0 || number > collective_count || type >= data_type_count ||
      operation >= reduce_operation_count)
    return str("an unknown call (fingerprint ", hex(fingerprint), ")");
  const auto collective = static_cast<Collective>(number - 1);
  std::string out(collective == Collective::point_to_point ? "a message" : name(collective));
  if (collective == Collective::barrier) return out;
  const std::uint64_t root = low_bits(fingerprint >> root_shift, root_bits);
  append(out, " of ");
  if (collective != Collective::all_to_all_v) {
    if (low_bits(fingerprint >> cut_shift, cut_bits) != 0) append(out, "n * 2^34 + ");
    append(out, str(low_bits(fingerprint, count_bits), ' '));
  }
  append(out, name(static_cast<DataType>(type)));
  if (is_reduction(collective) || collective == Collective::custom)
    append(out, str(", ", name(static_cast<ReduceOperation>(operation))));
  if (has_root(collective)) append(out, str(", root ", root));
  if (collective == Collective::custom) append(out, str(", program ", hex(root)));
  return out;
}

// The finaliser of MurmurHash3, which changes half of the bits for each that differs.
std::uint32_t call_tag(const CallId& call) {
  std::uint64_t hash = call.what ^ std::uint64_t{call.plan} * 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return static_cast<std::uint32_t>(hash ^ hash >> 33);
}

std::uint32_t plan_id(std::string_view name, std::uint64_t digest, Protocol protocol, int channels,
                      Place place) {
  const std::uint32_t hash = name_hash(name, digest);
  PlanNames& names = plan_names();
  {
    const std::lock_guard lock(names.mutex);
    names.by_hash.try_emplace(hash, name);
  }
  return hash << name_shift | static_cast<std::uint32_t>(protocol) << protocol_shift |
         static_cast<std::uint32_t>(place) << channels_bits |
         static_cast<std::uint32_t>(low_bits(static_cast<std::uint64_t>(channels), channels_bits));
}

std::string describe_plan(std::uint32_t plan) {
  const auto protocol = static_cast<std::uint32_t>(low_bits(plan >> protocol_shift, protocol_bits));
  const std::uint64_t channels = low_bits(plan, channels_bits);
  const std::uint32_t hash = plan >> name_shift;
  if (plan == 0 || protocol >= protocol_count)
    return str("an unknown plan (", hex(std::uint64_t{plan}), ")");
  std::string out;
  {
    PlanNames& names = plan_names();
    const std::lock_guard lock(names.mutex);
    const auto known = names.by_hash.find(hash);
    out = known != names.by_hash.end() ? known->second : str("number ", hex(std::uint64_t{hash}));
  }
  append(out, str(", ", name(static_cast<Protocol>(protocol)), ", ", channels,
                  channels == 1 ? " channel" : " channels"));
  return out;
}

std::string describe_call(const CallId& call, const CallId& other) {
  std::string out = describe_call(call.what);
  if (call.number != other.number)
    append(out, str(", as call ", call.number));
  else if (call.what == other.what && call.plan != other.plan)
    append(out, str(", by plan ", describe_plan(call.plan)));
  if (call.number == other.number && place_of(call.plan) != place_of(other.plan))
    append(out, str(", ", describe_place(call.plan)));
  return out;
}

}  // namespace unisono
