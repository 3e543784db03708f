#include "comm/join/join.h"

#include <array>

#include "base/error.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/control/directory.h"
#include "comm/join/joining.h"

namespace unisono::comm {
namespace {

// How long a rank of a job that has failed tells those who come late.
constexpr std::int64_t tell_late_ns = 2'000'000'000;

Result<Key> random_key(sys::World& world) {
  Key key;
  UNISONO_TRY(world.fill_random(key));
  return key;
}

}  // namespace

Result<std::uint64_t> random_number(sys::World& world) {
  std::array<std::byte, 8> bytes;
  UNISONO_TRY(world.fill_random(bytes));
  return WireReader(bytes).number<std::uint64_t>();
}

sys::Task<Result<Joined>> Joining::run() {
  Status valid = check_options(options_, self_.common.size());
  if (!valid.ok()) co_return valid.take_error();
  tree_.emplace(options_.rank, options_.world_size, options_.fan_out);
  node_ = std::make_shared<ControlNode>(world_, options_.rank, options_.world_size, wire());
  if (options_.world_size > 1) place_ = *parse_rendezvous(options_.rendezvous);
  Status joined;
  if (options_.rank == 0)
    joined = begin_job();
  else
    joined = co_await reach_parent();
  if (joined.ok()) joined = co_await assemble();
  if (!joined.ok() && reception_) {
    reception_->fail(joined.error());
    co_await reception_->drain(world_.now_ns() + tell_late_ns);
  }
  for (const std::string& path : published_) world_.remove_file(path);
  if (reception_) reception_->close();
  if (options_.failure) co_return *options_.failure;
  if (!joined.ok()) co_return joined.take_error();
  node_->end_enrolment();
  Joined out;
  out.node = std::move(node_);
  out.roster = std::move(roster_);
  co_return std::move(out);
}

sys::Task<Status> Joining::assemble() {
  Assembly::Setup setup;
  setup.self = self_;
  setup.most_addresses = options_.most_addresses;
  setup.timeout_ns = options_.timeout_ns;
  setup.deadline_ns = deadline_ns_;
  assembly_.emplace(*node_, *tree_, reception_, std::move(setup));
  if (options_.failure) assembly_->fail(cannot_join(options_.rank, options_.failure->message));
  if (early_) assembly_->fail(*early_);
  Result<Roster> roster = co_await assembly_->run();
  assembly_.reset();
  if (!roster.ok()) co_return roster.take_error();
  roster_ = std::move(*roster);
  co_return Status();
}

void Joining::report(const Error& error) {
  if (assembly_)
    assembly_->fail(error);
  else if (!early_)
    early_ = error;
}

void Joining::set_job(std::uint64_t job, const Key& key) {
  node_->set_directory(std::make_unique<Directory>(*node_, *tree_));
  node_->set_job(job, key);
}

// Rank 0's.
Status Joining::begin_job() {
  UNISONO_ASSIGN(const std::uint64_t job, random_number(world_));
  UNISONO_ASSIGN(const Key job_key, random_key(world_));
  set_job(job, job_key);
  if (options_.world_size == 1) return {};
  if (!listener_) {
    sys::Address where = place_.address;
    if (place_.is_file) where = {world_.own_host(), 0};
    if (!options_.interface.empty()) where.host = options_.interface;
    UNISONO_ASSIGN(listener_, world_.listen(where));
  }
  secret_ = options_.secret;
  if (place_.is_file && secret_.empty()) {
    UNISONO_ASSIGN(const Key random, random_key(world_));
    secret_ = hex(random);
    UNISONO_TRY(world_.publish_file(place_.path + ".secret", secret_));
    published_.push_back(place_.path + ".secret");
  }
  const std::string address = listener_->address().text();
  UNISONO_TRY(start_node(std::move(listener_)));
  if (!place_.is_file) return {};
  return publish(address, secret_);
}

Status Joining::publish(const std::string& address, const std::string& secret) {
  const std::string path = file_of(options_.rank);
  UNISONO_TRY(world_.publish_file(path, encode_rendezvous_file(address, secret)));
  published_.push_back(path);
  return {};
}

Status Joining::start_node(std::unique_ptr<sys::Listener> listener) {
  if (tree_->children().empty()) return node_->start(std::move(listener), std::nullopt);
  reception_ =
      std::make_shared<Reception>(*node_, *tree_, [this](const Error& error) { report(error); });
  ControlNode::Enrolments enrolments;
  enrolments.key = own_key();
  enrolments.serve = [reception = reception_](std::unique_ptr<Channel> channel,
                                              const Enrolment& enrolment) {
    return Reception::serve(reception, std::move(channel), enrolment);
  };
  enrolments.direct = [reception = reception_](Visitor visitor) {
    return Reception::direct(reception, visitor);
  };
  enrolments.disagree = [reception = reception_](const Error& error) { reception->report(error); };
  return node_->start(std::move(listener), std::move(enrolments));
}

sys::Task<Result<Joined>> join_job(sys::World& world, BootstrapOptions options,
                                   SelfDescription self, std::unique_ptr<sys::Listener> listener) {
  Joining joining(world, std::move(options), std::move(self), std::move(listener));
  Result<Joined> joined = co_await joining.run();
  co_return std::move(joined);
}

}  // namespace unisono::comm
