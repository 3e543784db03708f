// Ranks as threads of this process, each with its own bootstrap over real sockets.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/wire.h"
#include "comm/join/bootstrap.h"

namespace unisono::comm {

inline constexpr std::int64_t second_ns = 1'000'000'000;

// What a rank contributes in these tests: recognisable, of a length that differs by rank.
inline std::vector<std::byte> contribution_of(int rank) {
  std::vector<std::byte> out;
  for (int i = 0; i < 1 + 3 * rank; ++i) out.push_back(static_cast<std::byte>(rank * 31 + i));
  return out;
}

inline bool is_contribution_of(int rank, std::span<const std::byte> bytes) {
  const auto expected = contribution_of(rank);
  return std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end());
}

// Runs `rank_main` once for each rank, each in its own thread.
inline void run_ranks(int ranks, const std::function<void(int)>& rank_main) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { rank_main(rank); });
  for (auto& thread : threads) thread.join();
}

// Bootstraps all ranks over loopback; result[rank]. `change` may spoil a rank's options.
inline std::vector<Result<BootstrapResult>> bootstrap_all(
    int ranks, std::int64_t timeout_ns = 60 * second_ns,
    const std::function<void(BootstrapOptions&)>& change = [](BootstrapOptions&) {}) {
  auto listener = RendezvousListener::open("127.0.0.1");
  const std::string rendezvous = listener->rendezvous();
  std::vector<Result<BootstrapResult>> results;
  for (int rank = 0; rank < ranks; ++rank) results.emplace_back(Error{});
  run_ranks(ranks, [&](int rank) {
    BootstrapOptions options{.rank = rank,
                             .world_size = ranks,
                             .rendezvous = rendezvous,
                             .secret = "the secret of this test",
                             .timeout_ns = timeout_ns};
    change(options);
    auto& result = results[static_cast<std::size_t>(rank)];
    if (rank == 0)
      result = bootstrap(options, {}, std::move(*listener));
    else
      result = bootstrap(options, SelfDescription{});
  });
  return results;
}

}  // namespace unisono::comm
