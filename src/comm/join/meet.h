// How ranks that share a store of keys and values meet: rank 0 listens, makes a secret, and puts
// both there. The store holds nothing else, so the job is no stronger than the store.
//
// A launcher's way to tell each process a string is a Store: PMI (pmi_rendezvous.h), and for
// Python PyTorch's store and a broadcast by MPI (bindings/python/meeting.cc).
#pragma once

#include <unisono/result.h>

#include <optional>
#include <string>
#include <string_view>

#include "comm/join/bootstrap.h"

namespace unisono::comm {

// meet() decides what a value means. A key is set once. One thread uses a store at a time.
class Store {
 public:
  virtual ~Store() = default;
  // For errors: "PMI".
  virtual std::string_view name() const = 0;
  // Makes a value, a word of visible characters, readable for all ranks.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Returns when the key is set, or with an error at a deadline of the store's own.
  virtual Status wait(const std::string& key) = 0;
  // The value of a key that has been waited for.
  virtual Result<std::string> get(const std::string& key) = 0;
};

struct Meeting {
  std::string key;  // another one for each job that meets in the store
  int rank = 0;
  std::string interface;  // as in BootstrapOptions
  // The settings have a secret. It precedes one that rank 0 would make, and no store sees it.
  bool has_secret = false;
  // Why this rank cannot join. Rank 0 sets that in place of where it listens.
  std::optional<Error> failure = std::nullopt;
};

struct Met {
  std::optional<RendezvousListener> listener;  // rank 0's
  std::string rendezvous;
  std::string secret;  // empty where the settings have one
};

// Collective over the job's ranks. A rank 0 that cannot listen or join tells the others why, who
// fail, too.
Result<Met> meet(Store& store, const Meeting& asked);

// Rank 0 sets this once all ranks have joined, so that the store does not keep the secret.
std::string forgotten_meeting();

// A value that says that a rank cannot join, and the error that such a value stands for.
std::string absent_rank(int rank, std::string_view why);
std::optional<Error> read_absent_rank(std::string_view value);

}  // namespace unisono::comm
