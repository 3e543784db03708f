// The World of real sockets and clocks: non-blocking sockets under one epoll, run by whichever
// thread is inside run().
//
// Any number of threads may be inside run() at once: one of them drives the loop for all, the
// others sleep until their task is done or the driver leaves and one of them takes over. So tasks
// of several communicators advance together and no thread is made. Everything that a task touches
// is touched by one thread at a time, with a mutex between one driver and the next.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "sys/world.h"

namespace unisono::sys {

class RealWorld final : public World {
 public:
  static Result<std::unique_ptr<RealWorld>> create();
  ~RealWorld() override;

  // Called by the thread that drives the loop, or here and now when nobody does.
  void post(std::function<void()> action) override;

  std::int64_t now_ns() const override;
  Status fill_random(std::span<std::byte> bytes) override;
  std::string own_host() override;
  Result<std::unique_ptr<Listener>> listen(const Address& address) override;
  // Takes over a listening socket.
  Result<std::unique_ptr<Listener>> adopt_listener(int descriptor);
  Task<Result<std::unique_ptr<Stream>>> connect(const Address& address,
                                                std::int64_t deadline_ns) override;
  Result<std::string> read_file(const std::string& path, std::size_t most_bytes,
                                bool private_only) override;
  Status publish_file(const std::string& path, std::string_view content) override;
  void remove_file(const std::string& path) override;
  Result<std::unique_ptr<Thread>> start_thread(std::string_view what,
                                               std::function<void()> run) override;
  std::unique_ptr<Condition> make_condition() override;
  void yield() override;
  std::int64_t lost_turns() override;
  void sleep(std::int64_t at_most_ns, std::span<const int> event_descriptors) override;
  Result<std::shared_ptr<std::byte>> share_memory(const std::string& name,
                                                  std::size_t bytes) override;
  void remove_shared_name(const std::string& name) override;
  ProcessIdentity process() override;
  std::uint64_t address_of(void* data, std::size_t bytes) override;
  std::byte* find_memory(const ProcessIdentity& owner, std::uint64_t address) override;
  Status write_memory(const ProcessIdentity& owner, std::uint64_t address,
                      std::span<const std::byte> bytes) override;
  Status read_memory(const ProcessIdentity& owner, std::uint64_t address,
                     std::span<std::byte> bytes) override;
  std::string host_identity() override;
  int processors() override;

 private:
  struct Root {
    Task<void>* task;
    bool done = false;
  };

  RealWorld(std::unique_ptr<Scheduler> scheduler, int epoll, int wake_event);
  void drive(Task<void>& task) override;
  void drive_until(const Root& own);
  void take_submitted();
  void finish_done();
  void wait_for_input();
  void wake();

  std::unique_ptr<Scheduler> scheduler_;
  const int epoll_;
  const int wake_event_;
  std::vector<Root*> active_;  // of the driver

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool driving_ = false;
  std::vector<Root*> submitted_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace unisono::sys
