#include "support/ranks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/str.h"

namespace unisono::test {

namespace {

// Of the calling thread alone.
bool name_host(const std::string& name) {
  return unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
}

}  // namespace

bool can_name_hosts() {
  bool can = false;
  std::thread([&] { can = name_host("a-host"); }).join();
  return can;
}

std::string node_name(const RanksOptions& options, int rank) {
  const int places = std::max(options.nodes, options.hosts);
  return str("node", rank * places / options.ranks);
}

Rendezvous::Rendezvous() {
  std::string pattern = (std::filesystem::temp_directory_path() / "unisono-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  directory_ = pattern;
  url_ = "file://" + directory_ + "/rendezvous";
}

Rendezvous::~Rendezvous() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void run_ranks(const RanksOptions& options, const std::function<void(Communicator&)>& body) {
  const Rendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] {
      if (options.hosts > 1 && !name_host(str("host", rank * options.hosts / options.ranks))) {
        ADD_FAILURE() << "no host name for rank " << rank << ": can_name_hosts() tells before";
        return;
      }
      InitOptions init;
      init.rank = rank;
      init.world_size = options.ranks;
      init.rendezvous = rendezvous.url();
      init.has_signals = options.has_signals;
      init.node = node_name(options, rank);
      init.transport = options.transport;
      init.timeout = options.timeout;
      init.settings = options.settings;
      if (options.levels) init.settings.emplace_back("UNISONO_LEVELS", options.levels(rank));
      if (options.device) init.device = options.device(rank);
      auto communicator = Communicator::init(init);
      if (!communicator.ok()) {
        ADD_FAILURE() << "rank " << rank << ": " << communicator.error().describe();
        return;
      }
      body(*communicator);
    });
  for (std::thread& thread : threads) thread.join();
}

std::string run_checked(Communicator& communicator, const CheckedCall& checked) {
  const Problem& problem = checked.problem;
  const int rank = communicator.rank();
  const auto r = static_cast<std::size_t>(rank);
  const auto inputs = random_inputs(problem, checked.type, checked.seed);
  const auto expected = expected_outputs(problem, inputs);
  const std::size_t size = size_bytes(checked.type);
  std::vector<std::byte> input = encode(inputs[r], checked.type);
  std::vector<std::byte> output(static_cast<std::size_t>(output_elements(problem, rank)) * size,
                                std::byte{0xa5});

  Call call;
  call.collective = problem.collective;
  call.input = input.data();
  call.output = output.data();
  call.count = problem.count;
  call.type = checked.type;
  call.operation = problem.operation;
  call.root = problem.root;
  call.multiplier = static_cast<double>(multiplier_of(rank));
  call.integer_multiplier = multiplier_of(rank);
  call.options = checked.options;
  const bool here = checked.in_place && (!has_root(problem.collective) || rank == problem.root);
  const std::size_t own = static_cast<std::size_t>(problem.count) * size * r;
  std::vector<std::byte> shared;
  const std::byte* result = output.data();
  if (here) {
    const bool input_inside = output.size() > input.size();
    const bool output_inside = input.size() > output.size();
    shared.assign(std::max(input.size(), output.size()), std::byte{0xa5});
    call.input = shared.data() + (input_inside ? own : 0);
    call.output = shared.data() + (output_inside ? own : 0);
    if (!input.empty()) std::memcpy(const_cast<void*>(call.input), input.data(), input.size());
    result = static_cast<const std::byte*>(call.output);
  }
  std::vector<std::int64_t> send_counts, send_starts, recv_counts, recv_starts;
  if (problem.collective == Collective::all_to_all_v) {
    std::int64_t sent = 0, received = 0;
    for (std::size_t other = 0; other < problem.counts.size(); ++other) {
      send_counts.push_back(problem.counts[r][other]);
      send_starts.push_back(sent);
      sent += send_counts.back();
      recv_counts.push_back(problem.counts[other][r]);
      recv_starts.push_back(received);
      received += recv_counts.back();
    }
    call.send_counts = send_counts;
    call.send_displacements = send_starts;
    call.recv_counts = recv_counts;
    call.recv_displacements = recv_starts;
  }
  const std::array memories{std::span(shared), std::span(input), std::span(output)};
  const Status status =
      checked.run ? checked.run(communicator, call, memories) : communicator.run(call);
  if (!status.ok()) return status.error().describe();
  const auto got = decode(result, static_cast<std::int64_t>(expected[r].size()), checked.type);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[r][i])
      return str("rank ", rank, ", element ", i, ": expected ", expected[r][i], ", got ", got[i]);
  if (!here && encode(inputs[r], checked.type) != input) return "the input was changed";
  return {};
}

}  // namespace unisono::test
