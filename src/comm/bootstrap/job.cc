#include "comm/bootstrap/job.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/sha256.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/bootstrap/invitation.h"
#include "comm/bootstrap/orphaned_jobs.h"
#include "comm/bootstrap/pmi_rendezvous.h"
#include "sys/host.h"
#include "sys/single_copy.h"
#include "transport/nvlink/transport.h"

namespace unisono::comm {
namespace {

constexpr std::size_t max_name_bytes = 1024;
// Measurements vary: a little faster is not faster.
constexpr std::uint32_t least_gain_per_mille = 1250;
constexpr std::uint32_t most_gain_per_mille = 1'000'000;
constexpr std::uint32_t set_per_mille = most_gain_per_mille + 1;  // UNISONO_ZERO_COPY=1

// What ranks tell of themselves before they can talk by transports.
struct SelfDescription {
  std::string node;
  std::string host;
  transport::FifoOptions fifo_options;
  bool checks_calls = false;
  bool has_device = false;
  bool has_signals = false;
  std::uint32_t cores = 1;
  std::uint32_t single_copy_per_mille = 0;  // of CopyCosts::gain
  std::uint64_t selection_file = 0;         // hash of its text; 0: none
  std::uint64_t forced_plans = 0;           // hash of the settings that force plans
};

std::vector<std::byte> write(const SelfDescription& introduction) {
  WireWriter writer;
  writer.text(introduction.node);
  writer.text(introduction.host);
  const transport::FifoOptions& fifo = introduction.fifo_options;
  writer.number(static_cast<std::uint64_t>(fifo.slots));
  writer.number(static_cast<std::uint64_t>(fifo.simple_slot_bytes));
  writer.number(static_cast<std::uint64_t>(fifo.ll_slot_bytes));
  writer.number(static_cast<std::uint64_t>(fifo.ll128_slot_bytes));
  writer.number(static_cast<std::uint8_t>(introduction.checks_calls));
  writer.number(static_cast<std::uint8_t>(introduction.has_device));
  writer.number(static_cast<std::uint8_t>(introduction.has_signals));
  writer.number(introduction.cores);
  writer.number(introduction.single_copy_per_mille);
  writer.number(introduction.selection_file);
  writer.number(introduction.forced_plans);
  return writer.take();
}

Result<SelfDescription> read_introduction(std::span<const std::byte> bytes, int rank) {
  WireReader reader(bytes);
  SelfDescription out;
  out.node = reader.text(max_name_bytes);
  out.host = reader.text(max_name_bytes);
  out.fifo_options.slots = static_cast<int>(reader.number<std::uint64_t>());
  out.fifo_options.simple_slot_bytes = reader.number<std::uint64_t>();
  out.fifo_options.ll_slot_bytes = reader.number<std::uint64_t>();
  out.fifo_options.ll128_slot_bytes = reader.number<std::uint64_t>();
  out.checks_calls = reader.number<std::uint8_t>() != 0;
  out.has_device = reader.number<std::uint8_t>() != 0;
  out.has_signals = reader.number<std::uint8_t>() != 0;
  out.cores = std::max(reader.number<std::uint32_t>(), 1U);
  out.single_copy_per_mille = reader.number<std::uint32_t>();
  out.selection_file = reader.number<std::uint64_t>();
  out.forced_plans = reader.number<std::uint64_t>();
  if (!reader.done())
    return peer_error(rank, "rank ", rank, " sent an introduction of ", bytes.size(),
                      " bytes that cannot be read; is it another version of unisono?");
  return out;
}

// Geometry is part of the protocol: ranks must agree on it.
Status agree(const SelfDescription& mine, const SelfDescription& theirs, int rank) {
  const auto same = [&](Setting setting, std::uint64_t a, std::uint64_t b) -> Status {
    if (a == b) return {};
    return misuse(setting_rows()[static_cast<std::size_t>(setting)].variable, " is ", a,
                  " here and ", b, " on rank ", rank, "; it must be the same on all ranks");
  };
  if (mine.has_device != theirs.has_device)
    return misuse("this rank was given ", mine.has_device ? "a" : "no", " CUDA device and rank ",
                  rank, theirs.has_device ? " was given one" : " was not",
                  "; name a device on all ranks or on none");
  if (mine.has_signals != theirs.has_signals)
    return misuse("this rank asks for ", mine.has_signals ? "" : "no ", "signals and rank ", rank,
                  theirs.has_signals ? " does" : " does not",
                  "; ask for signals on all ranks or on none");
  // Ranks that run different plans would wait for each other without end.
  if (mine.selection_file != theirs.selection_file)
    return misuse("the file of UNISONO_SELECTION_FILE is not the same here and on rank ", rank,
                  "; give all ranks one file");
  if (mine.forced_plans != theirs.forced_plans)
    return misuse(
        "UNISONO_ALGORITHM, UNISONO_PROTOCOL or UNISONO_CHANNELS differs between this "
        "rank and rank ",
        rank, "; they must be the same on all ranks");
  const auto& a = mine.fifo_options;
  const auto& b = theirs.fifo_options;
  UNISONO_TRY(same(Setting::simple_slots, static_cast<std::uint64_t>(a.slots),
                   static_cast<std::uint64_t>(b.slots)));
  UNISONO_TRY(same(Setting::simple_slot_bytes, a.simple_slot_bytes, b.simple_slot_bytes));
  UNISONO_TRY(same(Setting::ll_slot_bytes, a.ll_slot_bytes, b.ll_slot_bytes));
  UNISONO_TRY(same(Setting::ll128_slot_bytes, a.ll128_slot_bytes, b.ll128_slot_bytes));
  return same(Setting::check_calls, mine.checks_calls, theirs.checks_calls);
}

// 0 where there is none; a file that cannot be read is refused when a communicator reads it.
std::uint64_t hash_of_selection_file(const Settings& settings) {
  const std::string& path = settings.text(Setting::selection_file);
  if (path.empty()) return 0;
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return sha256_word(text.str());
}

std::uint64_t hash_of_forced_plans(const Settings& settings) {
  return sha256_word(str(settings.text(Setting::algorithm), ";", settings.text(Setting::protocol),
                         ";", settings.integer(Setting::channels)));
}

// What a rank says for or against single copies: what is set, or else what it measures.
std::uint32_t single_copy_per_mille(const Settings& settings, bool has_peers_by_shm) {
  if (settings.is_set(Setting::zero_copy))
    return settings.boolean(Setting::zero_copy) ? set_per_mille : 0;
  if (!has_peers_by_shm) return 0;
  const double gain = sys::measure_copies().gain() * 1000;
  return static_cast<std::uint32_t>(std::min<double>(gain, most_gain_per_mille));
}

// For the first communicator of this process, and by rank 0 alone: once in a job.
void warn_of_unknown_variables(int rank) {
  // Relaxed: it orders nothing else.
  static std::atomic<bool> is_done = false;
  if (is_done.exchange(true, std::memory_order_relaxed) || rank != 0) return;
  for (const std::string& one : unknown_variables()) log(LogLevel::warn, one);
}

}  // namespace

Status Job::set_policy(const InitOptions& options) {
  const std::string& name = settings_.text(Setting::gpu_policy);
  const auto set = policy_from_name(name);
  if (!set && !name.empty())
    return misuse("UNISONO_GPU_POLICY: there is no policy '", name, "'; write fastest or zero_sm");
  policy_ = options.policy ? *options.policy : set.value_or(Policy::fastest);
  max_sms_ = options.max_sms != 0 ? options.max_sms
                                  : static_cast<int>(settings_.integer(Setting::gpu_max_sms));
  if (max_sms_ < 0) return misuse("max_sms is ", max_sms_, "; it must be 1 or more, or 0");
  leaves_room_ = settings_.boolean(Setting::gpu_compute_overlap);
  has_signals_ = options.has_signals;
  return {};
}

Result<std::shared_ptr<Job>> Job::make(const InitOptions& options) {
  UNISONO_ASSIGN(Settings settings, environment_settings().with(options.settings));
  UNISONO_TRY(settings.check());
  std::shared_ptr<Job> job(new Job(std::move(settings)),
                           [](Job* gone) { leave(std::unique_ptr<Job>(gone)); });
  job->named_transport_ =
      options.transport.empty() ? job->settings().text(Setting::transport) : options.transport;
  UNISONO_TRY(transport::check_transport_name(job->named_transport_));
  job->timeout_ns_ = options.timeout.count() > 0 ? options.timeout.count()
                                                 : job->settings().duration_ns(Setting::timeout);
  job->bootstrap_timeout_ns_ = options.bootstrap_timeout.count() > 0
                                   ? options.bootstrap_timeout.count()
                                   : job->settings().duration_ns(Setting::bootstrap_timeout);
  job->fifo_options_ = transport::FifoOptions::from_settings(job->settings());
  job->device_ = options.device;
  UNISONO_TRY(job->set_policy(options));
  return job;
}

Result<std::shared_ptr<Job>> Job::join_in(const Surroundings& surroundings,
                                          const InitOptions& options) {
  UNISONO_ASSIGN(std::shared_ptr<Job> job, make(options));
  BootstrapOptions bootstrap_options{.rank = options.rank,
                                     .world_size = options.world_size,
                                     .rendezvous = options.rendezvous,
                                     .secret = options.secret,
                                     .interface = options.interface,
                                     .timeout_ns = options.bootstrap_timeout.count()};
  UNISONO_TRY(fill_from_settings(job->settings(), bootstrap_options));
  job->rank_ = bootstrap_options.rank;
  UNISONO_TRY(job->introduce(options, bootstrap_options, {}, surroundings));
  return job;
}

Result<std::shared_ptr<Job>> Job::join(const InitOptions& options,
                                       std::optional<RendezvousListener> listener) {
  UNISONO_ASSIGN(std::shared_ptr<Job> job, make(options));
  UNISONO_ASSIGN(BootstrapOptions bootstrap_options,
                 bootstrap_options_from_settings(job->settings(),
                                                 {.rank = options.rank,
                                                  .world_size = options.world_size,
                                                  .rendezvous = options.rendezvous,
                                                  .secret = options.secret,
                                                  .interface = options.interface,
                                                  .timeout_ns = options.bootstrap_timeout.count(),
                                                  .shared_key = options.shared_key}));
  if (bootstrap_options.world_size > 1) {
    if (is_invitation(bootstrap_options.rendezvous)) {
      UNISONO_ASSIGN(listener, follow_invitation(bootstrap_options));
    } else if (bootstrap_options.rendezvous == pmi_rendezvous) {
      UNISONO_ASSIGN(listener, rendezvous_through_pmi(bootstrap_options));
    }
  }
  job->rank_ = bootstrap_options.rank;
  set_log_rank(job->rank_);
  warn_of_unknown_variables(job->rank_);
  UNISONO_TRY(job->introduce(options, bootstrap_options, std::move(listener), {}));
  return job;
}

Status Job::introduce(const InitOptions& options, const BootstrapOptions& bootstrap_options,
                      std::optional<RendezvousListener> listener,
                      const Surroundings& surroundings) {
  const bool is_real = surroundings.world == nullptr;
  SelfDescription mine;
  mine.host = is_real ? sys::host_identity() : surroundings.world->host_identity();
  mine.node = !options.node.empty() ? options.node : settings_.text(Setting::node);
  if (mine.node.empty()) mine.node = mine.host;
  if (mine.node.size() > max_name_bytes)
    return misuse("the node's name has ", mine.node.size(), " bytes; at most ", max_name_bytes,
                  " are allowed");
  mine.fifo_options = fifo_options_;
  mine.checks_calls = settings_.boolean(Setting::check_calls);
  mine.has_device = device_ >= 0;
  mine.has_signals = has_signals_;
  mine.cores = is_real ? std::thread::hardware_concurrency()
                       : static_cast<unsigned>(surroundings.world->processors());
  mine.single_copy_per_mille = single_copy_per_mille(
      settings_, bootstrap_options.world_size > 1 && named_transport_ != "socket");
  mine.selection_file = hash_of_selection_file(settings_);
  mine.forced_plans = hash_of_forced_plans(settings_);
  UNISONO_ASSIGN(BootstrapResult found,
                 !is_real   ? bootstrap(surroundings.world, bootstrap_options, write(mine))
                 : listener ? bootstrap(bootstrap_options, write(mine), std::move(*listener))
                            : bootstrap(bootstrap_options, write(mine)));
  world_ = std::move(found.world);
  sys_world_ = world_->world();
  id_ = world_->communicator();

  std::map<std::string, int> ranks_on;
  std::map<std::string, std::uint32_t> cores_of;
  std::uint32_t gain_per_mille = set_per_mille;
  int ranks_on_node = 0;
  for (int rank = 0; rank < world_->size(); ++rank) {
    UNISONO_ASSIGN(const SelfDescription theirs,
                   read_introduction(found.contributions[rank], rank));
    UNISONO_TRY(agree(mine, theirs, rank));
    members_.push_back(
        {.node = theirs.node, .host = theirs.host, .route = {}, .address_on_host = {}});
    ++ranks_on[theirs.host];
    ranks_on_node += theirs.node == mine.node ? 1 : 0;
    // Ranks bound to few cores each know only these.
    std::uint32_t& cores = cores_of[theirs.host];
    cores = std::max(cores, theirs.cores);
    gain_per_mille = std::min(gain_per_mille, theirs.single_copy_per_mille);
  }
  fifo_options_.zero_copy = gain_per_mille >= least_gain_per_mille;
  if (fifo_options_.zero_copy && gain_per_mille < set_per_mille)
    host_traits_.single_copy_gain = gain_per_mille / 1000.0;
  const bool one_host = ranks_on.size() == 1;
  ranks_on_host_ = ranks_on[mine.host];
  int most_on_a_host = 0;
  for (const auto& [host, ranks] : ranks_on) {
    most_on_a_host = std::max(most_on_a_host, ranks);
    host_traits_.oversubscription =
        std::max(host_traits_.oversubscription, static_cast<double>(ranks) / cores_of[host]);
  }
  fifo_options_ = fifo_options_.shared_by(most_on_a_host);
  UNISONO_TRY(fifo_options_.check());

  // Data are protected where UNISONO_WIRE asks for it, the control plane also where it says
  // nothing.
  const bool is_asked_for = !settings_.text(Setting::wire).empty();
  transport::TransportOptions transport_options{
      .key = found.key,
      .protection = is_asked_for ? bootstrap_options.protection : sys::Protection::none,
      .interface = bootstrap_options.interface,
      .socket_streams = settings_.integer(Setting::socket_streams),
      .rails = settings_.text(Setting::rails),
      .shares_memory = fifo_options_.zero_copy && ranks_on_node > 1 && named_transport_ != "socket",
      .delay_ns = settings_.duration_ns(Setting::delay)};
  if (transport_options.interface.empty() && !one_host) transport_options.interface = found.host;
  auto made =
      transport::TransportSet::make(transport_options, named_transport_, surroundings.make_network);
  status_page_key_ = derive_key(transport_options.key, "unisono status page");
  erase(transport_options.key);
  if (made.ok()) transports_ = std::move(*made);
  return exchange_contacts(made.ok() ? Status() : made.take_error(), bootstrap_options.timeout_ns);
}

// A rank that has no transports says why in place of its contact, so that all name it.
Status Job::exchange_contacts(Status made, std::int64_t timeout_ns) {
  constexpr std::size_t most_bytes = transport::Transport::max_address_bytes;
  WireWriter writer;
  writer.text(made.ok() ? "" : made.error().message.substr(0, most_bytes));
  transports_.contact().write(writer);
  auto contacts = world_->all_gather(writer.bytes(), timeout_ns);
  UNISONO_TRY(std::move(made));
  if (!contacts.ok()) return contacts.take_error();
  for (int rank = 0; rank < world_->size(); ++rank) {
    WireReader reader((*contacts)[rank]);
    const std::string_view why_not = reader.text(most_bytes);
    const transport::Contact theirs = transport::Contact::read(reader);
    if (!reader.done())
      return peer_error(rank, "rank ", rank, " sent transport addresses that cannot be read");
    if (!why_not.empty()) return peer_error(rank, "rank ", rank, " cannot join: ", why_not);
    Member& peer = members_[static_cast<std::size_t>(rank)];
    const transport::Nearness near{.is_same_host = is_on_this_host(rank),
                                   .is_same_node = peer.node == member(rank_).node};
    UNISONO_ASSIGN(peer.route, transports_.route_to(rank, theirs, near));
    if (const std::string* address = transports_.address_on_host(theirs))
      peer.address_on_host = *address;
  }
  return {};
}

std::string Job::status_page_name(std::uint64_t communicator, std::uint32_t epoch, int node) const {
  WireWriter context;
  context.number(communicator);
  context.number(epoch);
  context.number(static_cast<std::uint32_t>(node));
  return secret_name(derive_key(status_page_key_, "name", {context.bytes()}));
}

Result<transport::Transport*> Job::nvlink(const std::shared_ptr<const sys::cuda::Device>& device) {
  const std::lock_guard lock(nvlink_mutex_);
  auto& transport = nvlink_[device->ordinal()];
  if (!transport) {
    UNISONO_ASSIGN(transport, transport::nvlink::make_transport(transports_.on_host(), device));
  }
  return transport.get();
}

bool Job::is_used_in_this_process() {
  const std::lock_guard lock(nvlink_mutex_);
  return std::ranges::any_of(nvlink_,
                             [](auto& of) { return of.second->is_used_in_this_process(); });
}

}  // namespace unisono::comm
