#include "comm/job/job.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/call_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/selection_file.h"
#include "base/settings.h"
#include "base/sha256.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/job/cards.h"
#include "comm/job/orphaned_jobs.h"
#include "comm/job/terms.h"
#include "comm/join/invitation.h"
#include "comm/join/invitation_place.h"
#include "comm/join/join.h"
#include "comm/join/pmi_rendezvous.h"
#include "sys/caches.h"
#include "sys/host.h"
#include "sys/single_copy.h"
#include "transport/nvlink/transport.h"

namespace unisono::comm {
namespace {

constexpr std::size_t max_name_bytes = 1024;
// For so long a rank that cannot join looks for the others to tell them.
constexpr std::int64_t most_declining_ns = 5'000'000'000;
// Measurements vary: a little faster is not faster.
constexpr std::uint32_t least_gain_per_mille = 1250;
constexpr std::uint32_t most_gain_per_mille = 1'000'000;
constexpr std::uint32_t set_per_mille = most_gain_per_mille + 1;  // UNISONO_ZERO_COPY=1

// 0 where there is none; a file that cannot be read is refused when a communicator reads it.
std::uint64_t hash_of_selection_file(const Settings& settings) {
  if (settings.text(Setting::selection_file).empty()) return 0;
  const auto text = read_selection_file(settings);
  return text.ok() ? sha256_word(*text) : 0;
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

// Takes the settings that can be read, and leaves out the others.
Settings readable_settings(const SettingValues& given) {
  const Settings& environment = environment_settings();
  Settings out;
  for (const SettingRow& row : setting_rows())
    if (environment.is_set(row.setting))
      static_cast<void>(out.set(row.setting, environment.text(row.setting)).ok());
  for (const auto& [variable, value] : given) static_cast<void>(out.set(variable, value).ok());
  return out;
}

Result<BootstrapOptions> bootstrap_options_of(const InitOptions& options, const Settings& settings,
                                              bool is_listening) {
  return bootstrap_options_from_settings(settings, {.rank = options.rank,
                                                    .world_size = options.world_size,
                                                    .rendezvous = options.rendezvous,
                                                    .secret = options.secret,
                                                    .interface = options.interface,
                                                    .timeout_ns = options.bootstrap_timeout.count(),
                                                    .shared_key = options.shared_key,
                                                    .is_listening = is_listening});
}

// Replaces a launcher's way to meet by where rank 0 listens; on rank 0 that is a new listener.
Status meet_others(const Settings& settings, BootstrapOptions& options,
                   std::optional<RendezvousListener>& listener) {
  if (options.world_size <= 1) return {};
  if (is_invitation(options.rendezvous)) {
    UNISONO_ASSIGN(options.shared_key, invited_key(settings, options.shared_key));
    UNISONO_ASSIGN(listener, follow_invitation(options));
  } else if (options.rendezvous == pmi_rendezvous) {
    UNISONO_ASSIGN(listener, rendezvous_through_pmi(options));
  }
  return {};
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
  call_defaults_.policy = options.policy ? *options.policy : set.value_or(Policy::fastest);
  call_defaults_.max_sms = options.max_sms != 0
                               ? options.max_sms
                               : static_cast<int>(settings_.integer(Setting::gpu_max_sms));
  UNISONO_TRY(check_options(call_defaults_));
  call_defaults_.compute_overlap = settings_.boolean(Setting::gpu_compute_overlap);
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
  job->node_name_ = !options.node.empty() ? options.node : job->settings().text(Setting::node);
  if (job->node_name_.size() > max_name_bytes)
    return misuse("the node's name has ", job->node_name_.size(), " bytes; at most ",
                  max_name_bytes, " are allowed");
  job->call_defaults_.timeout =
      options.timeout.count() > 0
          ? options.timeout
          : std::chrono::nanoseconds(job->settings().duration_ns(Setting::timeout));
  job->bootstrap_timeout_ns_ = options.bootstrap_timeout.count() > 0
                                   ? options.bootstrap_timeout.count()
                                   : job->settings().duration_ns(Setting::bootstrap_timeout);
  job->fifo_options_ = transport::FifoOptions::from_settings(job->settings());
  job->device_ = options.device;
  UNISONO_TRY(job->set_policy(options));
  UNISONO_ASSIGN(job->location_.location, location_from_settings(job->settings()));
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
  UNISONO_TRY(job->introduce(bootstrap_options, {}, surroundings));
  return job;
}

Result<std::shared_ptr<Job>> Job::join(const InitOptions& options,
                                       std::optional<RendezvousListener> listener,
                                       bool is_listening) {
  Result<std::shared_ptr<Job>> made = make(options);
  if (!made.ok()) {
    decline(options, made.error(), std::move(listener), is_listening);
    return made;
  }
  std::shared_ptr<Job> job = std::move(*made);
  UNISONO_ASSIGN(BootstrapOptions bootstrap_options,
                 bootstrap_options_of(options, job->settings(), is_listening));
  UNISONO_TRY(meet_others(job->settings(), bootstrap_options, listener));
  job->rank_ = bootstrap_options.rank;
  set_log_rank(job->rank_);
  UNISONO_ASSIGN(job->location_, own_location(job->settings()));
  warn_of_unknown_variables(job->rank_);
  UNISONO_TRY(job->introduce(bootstrap_options, std::move(listener), {}));
  return job;
}

void Job::decline(const InitOptions& options, const Error& why,
                  std::optional<RendezvousListener> listener, bool is_listening) {
  const Settings settings = readable_settings(options.settings);
  auto known = bootstrap_options_of(options, settings, is_listening);
  if (!known.ok() || known->world_size <= 1) return;
  known->failure = why;
  known->timeout_ns = std::min(known->timeout_ns, most_declining_ns);
  if (!meet_others(settings, *known, listener).ok()) return;
  const auto told = listener ? bootstrap(*known, SelfDescription{}, std::move(*listener))
                             : bootstrap(*known, SelfDescription{});
  if (!told.ok() && told.error().message != why.message)
    log(LogLevel::debug,
        "this rank cannot join, and could not tell the others: ", told.error().message);
}

Status Job::introduce(const BootstrapOptions& bootstrap_options,
                      std::optional<RendezvousListener> listener,
                      const Surroundings& surroundings) {
  const bool is_real = surroundings.world == nullptr;
  SelfDescription self;
  self.host = is_real ? sys::host_identity() : surroundings.world->host_identity();
  if (node_name_.empty()) node_name_ = self.host;
  self.node = node_name_;
  self.location = topo::to_text(location_.location);
  self.location_is_launchers = location_.is_launchers;
  self.cores = std::max(is_real ? std::thread::hardware_concurrency()
                                : static_cast<unsigned>(surroundings.world->processors()),
                        1U);
  self.least = single_copy_per_mille(
      settings_, bootstrap_options.world_size > 1 && transport::reads_peers(named_transport_));
  // The simulated world has no caches.
  if (const std::size_t bytes = is_real ? sys::second_level_bytes() : 0; bytes > 0)
    self.cache_kib = static_cast<std::uint32_t>(bytes >> 10);
  self.common = write_terms({.fifo_options = fifo_options_,
                             .checks_calls = settings_.boolean(Setting::check_calls),
                             .has_device = device_ >= 0,
                             .has_signals = has_signals_,
                             .selection_file = hash_of_selection_file(settings_),
                             .forced_plans = hash_of_forced_plans(settings_),
                             .is_flat = settings_.boolean(Setting::flat),
                             .calls = call_defaults_});
  self.explain = explain_terms;
  UNISONO_ASSIGN(BootstrapResult found,
                 !is_real   ? bootstrap(surroundings.world, bootstrap_options, self)
                 : listener ? bootstrap(bootstrap_options, self, std::move(*listener))
                            : bootstrap(bootstrap_options, self));
  world_ = std::move(found.world);
  sys_world_ = world_->world();
  id_ = world_->communicator();
  roster_ = std::move(found.roster);
  records_ = std::move(found.records);
  UNISONO_TRY(read_levels());

  const std::uint32_t gain_per_mille = std::min(roster_.least(), set_per_mille);
  fifo_options_.zero_copy = gain_per_mille >= least_gain_per_mille;
  if (fifo_options_.zero_copy && gain_per_mille < set_per_mille)
    host_traits_.single_copy_gain = gain_per_mille / 1000.0;
  const bool one_host = roster_.hosts() == 1;
  ranks_on_host_ = roster_.ranks_on_host(roster_.host_of(rank_));
  const int ranks_on_node = roster_.ranks_on_node(roster_.node_of(rank_));
  host_traits_.oversubscription = roster_.oversubscription();
  fifo_options_ =
      fifo_options_.shared_by(roster_.most_on_a_host(), std::size_t{roster_.cache_kib()} << 10);
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
      .shares_memory =
          fifo_options_.zero_copy && ranks_on_node > 1 && transport::reads_peers(named_transport_),
      .epochs = world_->open_epochs(),
      .delay_ns = settings_.duration_ns(Setting::delay)};
  if (transport_options.interface.empty() && !one_host) transport_options.interface = found.host;
  const bool has_cards = is_real && (!one_host || roster_.nodes() > 1);
  if (!has_cards && transport_options.rails == near_rails) transport_options.rails.clear();
  Status placed = has_cards ? choose_cards("/sys", device_, transport_options) : Status();
  auto made = !placed.ok() ? Result<transport::TransportSet>(placed.take_error())
                           : transport::TransportSet::make(transport_options, named_transport_,
                                                           surroundings.make_network);
  status_page_key_ = derive_key(transport_options.key, "unisono status page");
  erase(transport_options.key);
  if (made.ok()) transports_ = std::move(*made);
  return exchange_contacts(made.ok() ? Status() : made.take_error(), bootstrap_options);
}

// All ranks read one roster, so they agree.
Status Job::read_levels() {
  std::vector<topo::Location> by_node;
  for (const Roster::Located& one : roster_.located()) {
    UNISONO_ASSIGN(const topo::Location location, topo::parse_location(one.location));
    by_node.insert(by_node.end(), one.nodes, location);
  }
  UNISONO_ASSIGN(levels_, topo::Levels::of_nodes(by_node));
  return {};
}

// A rank that has no transports says why in place of its contact, so that all name it. In a large
// job each rank keeps its contact for those that look it up.
Status Job::exchange_contacts(Status made, const BootstrapOptions& options) {
  constexpr std::size_t most_bytes = transport::Transport::max_address_bytes;
  if (size() > options.most_addresses) {
    WireWriter mine;
    transports_.contact().write(mine);
    if (made.ok()) made = records_.publish(mine.take());
    if (!made.ok()) made = cannot_join(rank_, made.error().message);
    return world_->agree(std::move(made), options.timeout_ns);
  }
  WireWriter writer;
  writer.text(made.ok() ? "" : made.error().message.substr(0, most_bytes));
  transports_.contact().write(writer);
  auto contacts = world_->all_gather(writer.bytes(), options.timeout_ns);
  UNISONO_TRY(std::move(made));
  if (!contacts.ok()) return contacts.take_error();
  for (int rank = 0; rank < size(); ++rank) {
    WireReader reader((*contacts)[rank]);
    const std::string_view why_not = reader.text(most_bytes);
    UNISONO_ASSIGN(Peer peer, read_peer(rank, reader));
    if (!why_not.empty()) return cannot_join(rank, why_not);
    UNISONO_TRY(choose_route(rank, peer));
    peers_[rank] = std::move(peer);
  }
  return {};
}

Result<Job::Peer> Job::read_peer(int world_rank, WireReader& reader) {
  Peer out;
  out.contact = transport::Contact::read(reader);
  if (!reader.done())
    return peer_error(world_rank, "rank ", world_rank,
                      " sent transport addresses that cannot be read");
  return out;
}

Status Job::choose_route(int world_rank, Peer& peer) const {
  const bool is_same_node = roster_.node_of(world_rank) == roster_.node_of(rank_);
  const transport::Nearness near{.is_same_host = is_on_this_host(world_rank),
                                 .is_same_node = is_same_node};
  UNISONO_ASSIGN(peer.route, transports_.route_to(world_rank, peer.contact, near));
  if (const std::string* address = transports_.address_on_host(peer.contact))
    peer.address_on_host = *address;
  peer.contact = {};
  return {};
}

Result<const Job::Peer*> Job::peer_of(int world_rank) {
  {
    const std::lock_guard lock(peers_mutex_);
    if (const auto known = peers_.find(world_rank); known != peers_.end()) return &known->second;
  }
  UNISONO_ASSIGN(const auto record, records_.look_up(world_rank, bootstrap_timeout_ns()));
  WireReader reader(record);
  UNISONO_ASSIGN(Peer peer, read_peer(world_rank, reader));
  UNISONO_TRY(choose_route(world_rank, peer));
  const std::lock_guard lock(peers_mutex_);
  return &peers_.try_emplace(world_rank, std::move(peer)).first->second;
}

Result<const transport::Route*> Job::route_to(int world_rank) {
  UNISONO_ASSIGN(const Peer* const peer, peer_of(world_rank));
  return &peer->route;
}

Result<std::string> Job::address_on_host(int world_rank) {
  UNISONO_ASSIGN(const Peer* const peer, peer_of(world_rank));
  return peer->address_on_host;
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
