#include "base/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/try.h"
#include "base/units.h"

namespace unisono {
namespace {

using enum SettingType;

constexpr std::array rows{
    SettingRow{Setting::log, "UNISONO_LOG", text, "warn",
               "How much is logged to standard error: off, error, warn, info or debug."},
    SettingRow{Setting::rank, "UNISONO_RANK", integer, "-1",
               "This process's rank; -1 uses what torchrun, mpiexec (PMI) or srun set."},
    SettingRow{Setting::world_size, "UNISONO_WORLD_SIZE", integer, "-1",
               "The number of ranks; -1 uses what torchrun, mpiexec (PMI) or srun set."},
    SettingRow{Setting::rendezvous, "UNISONO_RENDEZVOUS", text, "",
               "Where ranks find each other: tcp://host:port or file:///path on a shared file "
               "system. Empty uses the launcher's; with torchrun this is MASTER_ADDR and the port "
               "after MASTER_PORT, as torchrun's own store listens on MASTER_PORT."},
    SettingRow{
        Setting::secret, "UNISONO_SECRET", text, "",
        "The secret that a process needs to join the job: the same on all ranks, known to nobody "
        "else. It is overwritten "
        "in the environment once it is read; processes that a rank starts and that join a job "
        "themselves need UNISONO_SECRET_FILE."},
    SettingRow{Setting::secret_file, "UNISONO_SECRET_FILE", text, "",
               "A file that holds the job's secret, readable by its owner only. It takes "
               "precedence over UNISONO_SECRET and over what a launcher or a store passes."},
    SettingRow{Setting::insecure, "UNISONO_INSECURE", boolean, "0",
               "Lets a job of several hosts run without a secret, although anybody who can connect "
               "to rank 0's port can then join it. The same on every rank."},
    SettingRow{Setting::wire, "UNISONO_WIRE", text, "",
               "How data between hosts is protected after the handshake: none, auth "
               "(nobody can change it) or encrypt (nobody can read it either). Empty authenticates "
               "the control plane and leaves the data as they are. The same on every rank."},
    SettingRow{Setting::node, "UNISONO_NODE", text, "",
               "The name of the node this rank is on; ranks with one name share memory. Empty uses "
               "the host's identity. Different names on one host emulate several nodes."},
    SettingRow{Setting::levels, "UNISONO_LEVELS", text, "",
               "Where this rank's node is, the nearest level first: 'rack=r12,zone=z3'. "
               "'rack=r12+12us,zone=z3+28us' also says how much longer a message takes that leaves "
               "the rack, or the zone, and plans are chosen by it. All ranks name the same levels "
               "and times. Empty uses what Slurm says; none uses nothing."},
    SettingRow{Setting::interface, "UNISONO_INTERFACE", text, "",
               "The address or interface that listeners bind to; empty uses the one that routes to "
               "the rendezvous."},
    SettingRow{Setting::timeout, "UNISONO_TIMEOUT", duration, "300s",
               "How long a collective may take before it fails. Within another second the waiting "
               "ranks agree on the rank that blocks them, and name it."},
    SettingRow{Setting::bootstrap_timeout, "UNISONO_BOOTSTRAP_TIMEOUT", duration, "120s",
               "How long making a communicator may take before it fails and names the missing "
               "ranks."},
    SettingRow{Setting::algorithm, "UNISONO_ALGORITHM", text, "",
               "Forces algorithms: 'ring' for every collective that has it, or "
               "'all_reduce:tree,all_gather:bruck'. Empty lets the selection table choose."},
    SettingRow{Setting::protocol, "UNISONO_PROTOCOL", text, "",
               "Forces the protocol: simple, ll or ll128. Empty lets the selection table choose."},
    SettingRow{Setting::channels, "UNISONO_CHANNELS", integer, "0",
               "Forces the number of channels; 0 lets the selection table choose."},
    SettingRow{
        Setting::selection_file, "UNISONO_SELECTION_FILE", text, "",
        "A selection table (JSON) that takes precedence over the built-in one; `unisono tune` "
        "writes one from simulations, studies/selection/table.py one from measurements."},
    SettingRow{Setting::simple_slots, "UNISONO_SLOTS", integer, "8",
               "Slots in each connection's buffer, for every protocol (nccl.txt V-C: NCCL_STEPS)."},
    SettingRow{Setting::simple_slot_bytes, "UNISONO_SIMPLE_SLOT_BYTES", size_bytes, "0",
               "Bytes in a slot of the Simple protocol (nccl.txt Table IV); 0 uses 512 KiB, and "
               "less for ranks of one machine, down to 64 KiB: all slots of a connection together "
               "take twice a core's own cache, and those of all connections share the others."},
    SettingRow{Setting::ll_slot_bytes, "UNISONO_LL_SLOT_BYTES", size_bytes, "32KiB",
               "Bytes in a slot of the LL protocol, flags included (nccl.txt Table IV)."},
    SettingRow{Setting::ll128_slot_bytes, "UNISONO_LL128_SLOT_BYTES", size_bytes, "600KiB",
               "Bytes in a slot of the LL128 protocol, flags included (nccl.txt Table IV)."},
    SettingRow{
        Setting::gpu_slots, "UNISONO_GPU_SLOTS", integer, "4",
        "Slots in each connection between GPUs, for every protocol; a power of two, at least 2."},
    SettingRow{
        Setting::gpu_slot_bytes, "UNISONO_GPU_SLOT_BYTES", size_bytes, "256KiB",
        "Bytes in a slot of a connection between GPUs; a multiple of 128. Where ring links are "
        "used, the default is 512KiB."},
    SettingRow{Setting::gpu_peer_access, "UNISONO_GPU_PEER_ACCESS", boolean, "1",
               "0 treats GPUs as unable to access each other's memory, so calls are staged through "
               "host memory."},
    SettingRow{Setting::staged, "UNISONO_STAGED", boolean, "1",
               "Stages calls on CUDA streams through host memory where GPUs cannot access each "
               "other's memory, as between hosts; 0 refuses them. The same on every rank."},
    SettingRow{
        Setting::gpu_ring_links, "UNISONO_GPU_RING_LINKS", text, "auto",
        "Whether kernels run calls between GPUs that cannot access each other's memory, as between "
        "hosts, while a thread of each rank forwards their messages: auto where each node has one "
        "rank; on; off stages these calls through host memory. The same on every rank."},
    SettingRow{Setting::gpu_zero_copy, "UNISONO_GPU_ZERO_COPY", boolean, "1",
               "Lets GPUs write large messages directly to the receiver's memory (zero-copy) after "
               "an address exchange. The same on every rank."},
    SettingRow{Setting::gpu_zero_copy_min_bytes, "UNISONO_GPU_ZERO_COPY_MIN_BYTES", size_bytes,
               "2MiB",
               "Messages between GPUs, or blocks of a collective, of at least this many bytes use "
               "zero-copy; smaller ones are staged through slots without an address exchange. The "
               "same on every rank."},
    SettingRow{Setting::gpu_ll128, "UNISONO_GPU_LL128", text, "auto",
               "Whether GPUs use the protocol LL128, which needs links that keep a store of 128 "
               "bytes whole: auto uses it over NVLink and inside one GPU; on wherever GPUs access "
               "each other's memory, with wrong results over links that split such stores; off "
               "never. The same on every rank."},
    SettingRow{Setting::gpu_policy, "UNISONO_GPU_POLICY", text, "",
               "What moves data between GPUs: fastest (the default) or zero_sm, which uses only "
               "the copy engines."},
    SettingRow{Setting::gpu_max_sms, "UNISONO_GPU_MAX_SMS", integer, "0",
               "The most SMs that a call may use; 0 sets no limit."},
    SettingRow{
        Setting::gpu_compute_overlap, "UNISONO_GPU_COMPUTE_OVERLAP", boolean, "0",
        "Large all-reduces, all-gathers and reduce-scatters use few SMs, so that compute kernels "
        "overlap with them; unisono.torch does so by default. The same on every rank."},
    SettingRow{Setting::gpu_stamps, "UNISONO_GPU_STAMPS", boolean, "0",
               "Kernels stamp when they begin and end, for the record, which then has an entry for "
               "each replay of a CUDA graph, too. It makes each kernel 0.1 to 0.4 us longer."},
    SettingRow{Setting::gpu_copy_slots, "UNISONO_GPU_COPY_SLOTS", integer, "2",
               "Slots in each connection between GPUs by the copy engines (policy zero_sm)."},
    SettingRow{
        Setting::gpu_copy_slot_bytes, "UNISONO_GPU_COPY_SLOT_BYTES", size_bytes, "4MiB",
        "Bytes in a slot of a connection between GPUs by the copy engines; a multiple of 4 KiB."},
    SettingRow{Setting::zero_copy, "UNISONO_ZERO_COPY", boolean, "0",
               "Lets the receiver read a large message directly from the sender's memory "
               "(cross-memory attach, or the same process) where the kernel allows it: 1 or 0. "
               "Where it is not set, ranks measure both when a job starts and use the faster one."},
    SettingRow{Setting::zero_copy_min_bytes, "UNISONO_ZERO_COPY_MIN_BYTES", size_bytes, "256KiB",
               "Messages of at least this many bytes use zero-copy where it is possible. Over "
               "sockets these, and all of more than 16 KiB, are sent without an intermediate copy; "
               "ranks refuse a connection whose other end has another value below that."},
    SettingRow{
        Setting::socket_streams, "UNISONO_SOCKET_STREAMS", integer, "0",
        "TCP streams in each connection of the socket transport, one for each rail at least. "
        "0 uses two inside a host and one between hosts."},
    SettingRow{
        Setting::transport, "UNISONO_TRANSPORT", text, "",
        "The transport between all ranks; `unisono info` lists them. Give all ranks one name, or "
        "none: then shm carries what stays inside a node, socket the rest."},
    SettingRow{Setting::rails, "UNISONO_RAILS", text, "",
               "Further addresses or interfaces, with commas between, for the data: the streams of "
               "a socket connection use UNISONO_INTERFACE and these in turn, each as much as it "
               "carries. One that ends costs no data as long as another is left. Give equally "
               "many, in the same order, on every rank. `near`: the network cards that are "
               "nearest to the rank's GPU or processor, in place of UNISONO_INTERFACE."},
    SettingRow{Setting::delay, "UNISONO_DELAY", duration, "0s",
               "Delays every message over sockets by this time, as a long link would; for testing "
               "on one machine how algorithms perform between distant nodes."},
    SettingRow{Setting::flat, "UNISONO_FLAT", boolean, "0",
               "Lets algorithms see all ranks on one node, in the order of ranks; for comparison "
               "with algorithms that ignore nodes. The same on every rank."},
    SettingRow{Setting::record_slots, "UNISONO_RECORD_SLOTS", integer, "1024",
               "Collectives kept in each communicator's record."},
    SettingRow{
        Setting::dump_directory, "UNISONO_DUMP_DIRECTORY", text, "",
        "The folder in which each rank writes its record as JSON when a communicator fails, and by "
        "signal; empty writes none."},
    SettingRow{Setting::dump_signal, "UNISONO_DUMP_SIGNAL", integer, "0",
               "The signal number that makes the process dump its records; 0 for none."},
    SettingRow{Setting::live, "UNISONO_LIVE", boolean, "1",
               "Answers unisono ras and unisono watch on a socket that this user alone can reach."},
    SettingRow{Setting::check_calls, "UNISONO_CHECK_CALLS", boolean, "0",
               "Compares every call across ranks before it runs: all ranks get an error that names "
               "the ranks that differ, or a rank that cannot make its call, and can continue. "
               "Messages between two "
               "ranks are compared by type and count. Without it, a difference is found when a "
               "message does not match, which ends the communicator."},
    SettingRow{Setting::check_passes, "UNISONO_CHECK_PASSES", boolean, "0",
               "Verifies programs of the language after every pass of the compiler, not only at "
               "the end, and names the pass that broke one. For work on the compiler; debug builds "
               "(without NDEBUG) always do so."},
    SettingRow{
        Setting::spin, "UNISONO_SPIN", integer, "-1",
        "Polls without progress before a waiting thread yields, and a 64th of them before it "
        "sleeps until a message of another host comes. 0 sleeps at once. -1 decides by the "
        "number of ranks and cores on the host, and by whether spinning pays: turns that the "
        "thread loses, and messages that do not come meanwhile, end it."},
    SettingRow{Setting::simd, "UNISONO_SIMD", text, "",
               "Caps the instruction set of the reductions: baseline, avx2 or avx512. Empty uses "
               "the best that the processor has."},
};

const SettingRow& row_of(Setting setting) { return rows[static_cast<std::size_t>(setting)]; }

// Every row stands at its setting's index; checked when this file compiles.
constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].setting) != i) return false;
  return true;
}
static_assert(rows_in_order());

Result<std::int64_t> parse_number(SettingType type, std::string_view value) {
  switch (type) {
    case text:
      return std::int64_t{0};
    case integer: {
      std::int64_t number = 0;
      const char* end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, number);
      if (parsed.ec != std::errc{} || parsed.ptr != end)
        return misuse("cannot read '", value, "' as a whole number");
      return number;
    }
    case size_bytes: {
      auto bytes = parse_bytes(value);
      if (!bytes.ok()) return bytes.take_error();
      return static_cast<std::int64_t>(*bytes);
    }
    case duration:
      return parse_duration_ns(value);
    case boolean:
      if (value == "1" || value == "true" || value == "yes" || value == "on") return 1;
      if (value == "0" || value == "false" || value == "no" || value == "off") return 0;
      return misuse("cannot read '", value, "' as yes or no; write 1 or 0");
  }
  return bug("'", value, "' is the value of a setting without a type");
}

}  // namespace

std::span<const SettingRow> setting_rows() { return rows; }

Settings::Settings() : values_(rows.size()) {
  for (const SettingRow& row : rows) {
    Value& value = values_[static_cast<std::size_t>(row.setting)];
    value.text = row.default_text;
    if (row.default_text.empty()) continue;
    if (auto number = parse_number(row.type, row.default_text); number.ok()) value.number = *number;
  }
}

const std::string& Settings::text(Setting setting) const {
  return values_[static_cast<std::size_t>(setting)].text;
}
std::int64_t Settings::integer(Setting setting) const {
  return values_[static_cast<std::size_t>(setting)].number;
}
std::uint64_t Settings::bytes(Setting setting) const {
  return static_cast<std::uint64_t>(values_[static_cast<std::size_t>(setting)].number);
}
std::int64_t Settings::duration_ns(Setting setting) const { return integer(setting); }
bool Settings::boolean(Setting setting) const { return integer(setting) != 0; }
bool Settings::is_set(Setting setting) const {
  return values_[static_cast<std::size_t>(setting)].is_set;
}

Status Settings::set(Setting setting, std::string_view value) {
  const SettingRow& row = row_of(setting);
  auto number = parse_number(row.type, value);
  if (!number.ok()) return misuse(row.variable, ": ", number.error().message);
  values_[static_cast<std::size_t>(setting)] = {std::string(value), *number, true};
  return {};
}

Status Settings::set(std::string_view variable, std::string_view value) {
  for (const SettingRow& row : rows)
    if (row.variable == variable) return set(row.setting, value);
  return misuse("there is no setting ", variable, near_settings(variable));
}

Result<Settings> Settings::with(const SettingValues& values) const {
  Settings out = *this;
  for (const auto& [variable, value] : values) UNISONO_TRY(out.set(variable, value));
  return out;
}

Status Settings::check() const {
  if (complaints_.empty()) return {};
  return misuse(join(complaints_, "; "));
}

namespace {

// What a secret is overwritten with; nobody has such a one.
constexpr char overwritten = '*';

bool is_overwritten(std::string_view secret) {
  return !secret.empty() && secret.find_first_not_of(overwritten) == std::string_view::npos;
}

Settings read_and_take_secret() {
  Settings out = Settings::from_environment();
  // These bytes are the process's own, where it started with them: /proc/<pid>/environ shows them.
  if (char* const secret = std::getenv(std::string(row_of(Setting::secret).variable).c_str()))
    std::fill_n(secret, std::strlen(secret), overwritten);
  return out;
}

}  // namespace

Settings Settings::from_environment() {
  Settings out;
  for (const SettingRow& row : rows) {
    const char* value = std::getenv(std::string(row.variable).c_str());
    if (value == nullptr) continue;
    if (row.setting == Setting::secret && is_overwritten(value)) {
      out.secret_was_taken_ = true;
      continue;
    }
    if (auto status = out.set(row.setting, value); !status.ok())
      out.complaints_.push_back(status.error().message);
  }
  return out;
}

Result<ProcessSetting> read_setting(std::string_view variable, SettingType type,
                                    std::string_view default_text) {
  const char* value = std::getenv(std::string(variable).c_str());
  ProcessSetting out{.variable = variable,
                     .text = value == nullptr ? std::string(default_text) : value,
                     .is_number = type != text};
  auto number = parse_number(type, out.text);
  if (!number.ok()) return misuse(variable, ": ", number.error().message);
  out.number = *number;
  return out;
}

const Settings& environment_settings() {
  // Lives as long as the process: a join that was given up may still read them when static objects
  // are destroyed.
  static const auto* const of_process = new Settings(read_and_take_secret());
  return *of_process;
}

}  // namespace unisono
