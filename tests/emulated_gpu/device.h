// The emulated device's memory, streams, events and graphs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace unisono::emulated {

// Allocations, by address.
class Allocations {
 public:
  struct Allocation {
    std::uint64_t address;
    std::size_t bytes;
    int device;
    std::uint64_t identity;
  };
  std::uint64_t allocate(std::size_t bytes, int device);
  bool free(std::uint64_t address);
  std::optional<Allocation> at(std::uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Allocation> all_;
  std::uint64_t next_identity_ = 1;
};
Allocations& allocations();

using Operation = std::function<void()>;

struct Graph {
  std::vector<Operation> operations;  // in an order that they may have
};

class Event {
 public:
  // What is recorded now; complete() is for that.
  std::uint64_t record();
  std::uint64_t recorded() const;
  void complete(std::uint64_t number);
  bool is_complete() const;
  void await(std::uint64_t number);
  std::int64_t completed_ns() const;
  // Of the capture in which it was recorded last.
  Graph* capture = nullptr;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::uint64_t completed_ = 0;
  std::int64_t completed_ns_ = 0;
};

// Its operations, one after another, by a thread of its own.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // Or into the graph that is being captured. Waits until the stream has room, as a driver does.
  void add(Operation operation);
  void synchronize();
  bool is_idle();

  Graph* capture = nullptr;

 private:
  static constexpr std::size_t most_operations = 1024;

  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool is_ending_ = false;
  bool is_working_ = false;
  std::thread worker_;
};

}  // namespace unisono::emulated
