// Runs a plan on host memory, all ranks in the calling thread: over shared memory, with the engine
// and the transport that communicators use.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "bind.h"
#include "convert.h"
#include "engine/engine.h"
#include "plan/partners.h"
#include "plan/plan.h"
#include "transport/shm/transport.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// Ranks of one process, a transport and what it carries for each.
class LocalRanks {
 public:
  static Result<std::unique_ptr<LocalRanks>> make(const plan::Plan& plan) {
    auto ranks = std::make_unique<LocalRanks>();
    static std::atomic<std::uint64_t> next{1};
    const std::uint64_t communicator = next++;
    ranks->options_ =
        transport::FifoOptions::from_settings(environment_settings()).shared_by(plan.header.ranks);
    UNISONO_TRY(ranks->options_.check());
    UNISONO_ASSIGN(const Key key, fresh_key());
    for (int rank = 0; rank < plan.header.ranks; ++rank) {
      UNISONO_ASSIGN(auto transport, transport::shm::make_transport({.key = key, .interface = {}}));
      ranks->transports_.push_back(std::move(transport));
      ranks->resources_.push_back(std::make_unique<Resources>(*ranks, rank, communicator));
    }
    const auto partners = plan::partners(plan);
    for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
      UNISONO_ASSIGN(auto execution, engine::make_execution(plan.header, plan.programs[rank],
                                                            *ranks->resources_[rank],
                                                            ranks->options_, {}, partners[rank]));
      ranks->executions_.push_back(std::move(execution));
    }
    return ranks;
  }

  Status run(const std::vector<engine::Arguments>& arguments, std::chrono::nanoseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + timeout;
    for (std::size_t rank = 0; rank < executions_.size(); ++rank)
      UNISONO_TRY(executions_[rank]->start(arguments[rank]));
    std::vector<bool> is_complete(executions_.size());
    for (std::size_t left = executions_.size(); left > 0;) {
      bool moved = false;
      for (std::size_t rank = 0; rank < executions_.size(); ++rank) {
        if (is_complete[rank]) continue;
        UNISONO_ASSIGN(const bool complete, executions_[rank]->poll());
        moved |= complete || executions_[rank]->progressed();
        if (!complete) continue;
        is_complete[rank] = true;
        --left;
      }
      if (!moved && Clock::now() > deadline) return stuck(is_complete);
    }
    return {};
  }

 private:
  class Resources : public engine::Resources {
   public:
    Resources(LocalRanks& ranks, int rank, std::uint64_t communicator)
        : ranks_(ranks), rank_(rank), communicator_(communicator) {}

    Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) override {
      UNISONO_ASSIGN(transport::Connection * connection, ready(peer, channel));
      if (connection == nullptr) return nullptr;
      auto& fifo = sends_[{peer, channel}];
      if (!fifo) fifo = transport::make_send_fifo(*connection, protocol, ranks_.options_);
      return fifo.get();
    }
    Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) override {
      UNISONO_ASSIGN(transport::Connection * connection, ready(peer, channel));
      if (connection == nullptr) return nullptr;
      auto& fifo = recvs_[{peer, channel}];
      if (!fifo) {
        UNISONO_ASSIGN(fifo, transport::make_recv_fifo(*connection, protocol, ranks_.options_));
      }
      return fifo.get();
    }
    Result<transport::Connection*> connection(int peer, int channel) override {
      return ready(peer, channel);
    }
    Status progress() override {
      return ranks_.transports_[static_cast<std::size_t>(rank_)]->progress();
    }
    Result<void*> scratch(std::size_t bytes) override {
      constexpr std::size_t alignment = 64;
      if (scratch_.size() < bytes + alignment) scratch_.resize(bytes + alignment);
      const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
      return scratch_.data() + (alignment - address % alignment) % alignment;
    }

   private:
    Result<transport::Connection*> ready(int peer, int channel) {
      auto& connection = connections_[{peer, channel}];
      if (!connection) {
        auto& own = *ranks_.transports_[static_cast<std::size_t>(rank_)];
        UNISONO_ASSIGN(
            connection,
            own.connect(
                {.key = {communicator_, 0, static_cast<unsigned>(channel)},
                 .ranks = static_cast<int>(ranks_.transports_.size()),
                 .self = rank_,
                 .peer = peer,
                 .peer_address = ranks_.transports_[static_cast<std::size_t>(peer)]->address(),
                 .geometry = transport::fifo_geometry(ranks_.options_)}));
      }
      UNISONO_ASSIGN(const bool is_ready, connection->ready());
      return is_ready ? connection.get() : nullptr;
    }

    using Key = std::pair<int, int>;  // peer, channel
    LocalRanks& ranks_;
    int rank_;
    std::uint64_t communicator_;
    std::map<Key, std::unique_ptr<transport::Connection>> connections_;
    std::map<Key, std::unique_ptr<transport::SendFifo>> sends_;
    std::map<Key, std::unique_ptr<transport::RecvFifo>> recvs_;
    std::vector<std::byte> scratch_;
  };

  Status stuck(const std::vector<bool>& is_complete) const {
    std::string waiting;
    for (std::size_t rank = 0; rank < executions_.size(); ++rank)
      if (!is_complete[rank])
        append(waiting, str(" rank ", rank, " waits for ",
                            trace::describe(executions_[rank]->waiting()), ";"));
    return timeout_error(-1, "the plan does not move on:", waiting);
  }

  transport::FifoOptions options_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<Resources>> resources_;
  std::vector<std::unique_ptr<engine::Execution>> executions_;
};

// Buffers by address; the caller knows that they are large enough.
void run_plan(const plan::Plan& plan, const std::vector<std::uintptr_t>& inputs,
              const std::vector<std::uintptr_t>& outputs, std::int64_t count, std::string_view type,
              std::string_view operation, double timeout) {
  const auto ranks = static_cast<std::size_t>(plan.header.ranks);
  if (inputs.size() != ranks || outputs.size() != ranks)
    raise(misuse(inputs.size(), " inputs and ", outputs.size(), " outputs for ", ranks, " ranks"));
  if (count < 0) raise(misuse("count is ", count, "; it must be 0 or more"));
  std::vector<engine::Arguments> arguments(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    arguments[rank].input = reinterpret_cast<const void*>(inputs[rank]);
    arguments[rank].output = reinterpret_cast<void*>(outputs[rank]);
    arguments[rank].count = count;
    arguments[rank].type = data_type_of(type);
    arguments[rank].operation = operation_of(operation);
  }
  const auto deadline = duration_of(timeout, "timeout");
  const auto run = [&]() -> Status {
    const nb::gil_scoped_release release;
    UNISONO_TRY(plan::check(plan, engine::limits()));
    UNISONO_ASSIGN(auto local, LocalRanks::make(plan));
    return local->run(arguments, deadline);
  };
  check(run());
}

}  // namespace

void bind_plan_run(nb::module_& module) {
  module.def("run_plan", &run_plan, nb::arg("plan"), nb::arg("inputs"), nb::arg("outputs"),
             nb::arg("count"), nb::arg("type"), nb::arg("operation"), nb::arg("timeout"));
}

}  // namespace unisono::python
