// The world of the library: time, randomness, threads and how they wait, byte streams, small files.
// Code written against it runs on real sockets, clocks and threads (real_world.h), and in a
// simulated world where a seed replays every delay, loss and death (simulated_world.h).
//
// The control plane is coroutines; what runs calls is blocking code. Blocking code enters a
// coroutine with run(), and waits by yield(), sleep() and conditions alone. It holds no mutex while
// it waits, but the one that it hands to Condition::wait_for().
//
// Deadlines are absolute, in ns of this world's clock. Errors of streams and listeners are
// environment errors, or timeouts; which peer is to blame is known to the caller only.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/process.h"
#include "sys/scheduler.h"
#include "sys/task.h"

namespace unisono::sys {

struct Address {
  std::string host;  // a numeric address or a name, IPv6 without brackets
  int port = 0;

  std::string text() const;  // "10.0.0.1:4000", "[::1]:4000"
  // The host must not be empty, the port is 0 to 65535.
  static Result<Address> parse(std::string_view text);
  // Whether the host is written as a loopback address: 127.x.x.x (also as IPv6 writes it), ::1 or
  // localhost.
  bool is_loopback() const;
  bool operator==(const Address&) const = default;
};

// Whether what travels between the two stays on this host: both are loopback addresses. Only the
// host's administrator can read or change it there.
bool stays_on_host(const Address& local, const Address& peer);

// Whether it is a name that only the processes of this host reach (World::listen).
inline bool is_name_of_host(const Address& address) { return address.host.starts_with('@'); }

// A connected byte stream; closed when destroyed, with what is unread discarded. One reader and one
// writer at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Reads 1 to buffer.size() bytes; 0 when the peer has closed its side.
  virtual Task<Result<std::size_t>> read_some(std::span<std::byte> buffer,
                                              std::int64_t deadline_ns) = 0;
  // Takes 1 to bytes.size() bytes.
  virtual Task<Result<std::size_t>> write_some(std::span<const std::byte> bytes,
                                               std::int64_t deadline_ns) = 0;
  // Takes as many bytes as it can without waiting, perhaps none.
  virtual std::size_t write_now(std::span<const std::byte> bytes) = 0;
  // Ends both directions now; reads and writes in progress and later ones fail or see the end.
  virtual void close() = 0;
  virtual const Address& local_address() const = 0;
  virtual const Address& peer_address() const = 0;
};

// Reads the whole buffer. A stream that ends before is an environment error.
Task<Status> read_exactly(Stream& stream, std::span<std::byte> buffer, std::int64_t deadline_ns);
Task<Status> write_all(Stream& stream, std::span<const std::byte> bytes, std::int64_t deadline_ns);

// What a connecting process must answer before the connection becomes a stream. Strangers cause
// these calls, so they take little time and keep nothing.
class Gate {
 public:
  virtual ~Gate() = default;
  // What connection `number` receives first. The connections of a listener count from 1.
  virtual std::vector<std::byte> challenge(std::uint64_t number) const = 0;
  // How many bytes an answer has that begins so; of nothing, the fewest that any has.
  virtual std::size_t answer_bytes(std::span<const std::byte> begin) const = 0;
  // An error, which is logged, if the answer does not let the connection in.
  virtual Status check(std::uint64_t number, std::span<const std::byte> answer) const = 0;
  // What a connection with a wrong answer receives before it is closed, and one that has not
  // answered in time, whose answer is empty.
  virtual std::vector<std::byte> refusal(std::uint64_t number,
                                         std::span<const std::byte> answer) const = 0;
  // How many connections may wait to answer; the oldest makes room for one more.
  virtual std::size_t most_waiting() const = 0;
};

// A connection that gave the right answer.
struct Admitted {
  std::unique_ptr<Stream> stream;
  std::uint64_t number = 0;
  std::vector<std::byte> answer;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Address& address() const = 0;  // numeric, with the port that was got
  // The next connection that passes the gate, the same in every call. Connections that have not
  // passed it cost little (waiting_room.h) and hold up nobody. One call at a time.
  virtual Task<Result<Admitted>> admit(const Gate& gate, std::int64_t deadline_ns) = 0;
};

// A thread of blocking code.
class Thread {
 public:
  virtual ~Thread() = default;
  // Before it is destroyed.
  virtual void join() = 0;
};

// What threads of blocking code wait for, as a std::condition_variable.
class Condition {
 public:
  virtual ~Condition() = default;
  virtual void notify_all() = 0;
  // It may return before, for no reason.
  virtual void wait_for(std::unique_lock<std::mutex>& lock, std::int64_t at_most_ns) = 0;
};

class World {
 public:
  virtual ~World() = default;

  virtual std::int64_t now_ns() const = 0;
  virtual Status fill_random(std::span<std::byte> bytes) = 0;
  Scheduler& scheduler() { return *scheduler_; }

  // An address of this host that other hosts may reach, where a rank listens (own_address.h).
  virtual std::string own_host() = 0;
  // `address.host` may be an address, a host's name or a network interface's name; port 0 lets
  // the system choose. A port in use is an environment error that says so. A host that begins with
  // '@' is a name, of at most 100 characters, that only the processes of this host reach, port 0.
  virtual Result<std::unique_ptr<Listener>> listen(const Address& address) = 0;
  // One attempt. Names are resolved by the system's resolver, whose own timeouts hold then.
  virtual Task<Result<std::unique_ptr<Stream>>> connect(const Address& address,
                                                        std::int64_t deadline_ns) = 0;

  // At most `most_bytes`; a longer file is an error. With `private_only`, the file must belong to
  // this user and be readable by nobody else.
  virtual Result<std::string> read_file(const std::string& path, std::size_t most_bytes,
                                        bool private_only) = 0;
  // Makes or replaces the file at once (readers see the old or the new one whole), mode 0600.
  virtual Status publish_file(const std::string& path, std::string_view content) = 0;
  virtual void remove_file(const std::string& path) = 0;

  // For blocking code. Runs the task to its end in the calling thread, concurrently with everybody
  // else's.
  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    Task<void> root = keep(task, out);
    drive(root);
    return std::move(*out);
  }
  // Has `action` called where tasks run: the way to touch their objects from outside of a task. It
  // must not block.
  virtual void post(std::function<void()> action) = 0;
  // `what` the thread is for, in the error's sentence.
  virtual Result<std::unique_ptr<Thread>> start_thread(std::string_view what,
                                                       std::function<void()> run) = 0;
  virtual std::unique_ptr<Condition> make_condition() = 0;
  // Lets others have the processor.
  virtual void yield() = 0;
  // How many times, since it last asked, the calling thread has lost the processor to others though
  // it had more to do.
  virtual std::int64_t lost_turns() { return 0; }
  // At most so long; with descriptors (eight at most), until one polls as readable.
  virtual void sleep(std::int64_t at_most_ns, std::span<const int> event_descriptors = {}) = 0;
  // Whether time is the machine's, so that the processor's counter measures it.
  virtual bool is_real() const { return true; }

  // Memory that the processes of this host share by the name ("/..."), zeroed at first, until all
  // have let it go. The name, which begins with handshake_prefix, stays until somebody removes it
  // or all that share the memory have ended.
  virtual Result<std::shared_ptr<std::byte>> share_memory(const std::string& name,
                                                          std::size_t bytes) = 0;
  virtual void remove_shared_name(const std::string& name) = 0;
  // Which of the processes of this host this is.
  virtual ProcessIdentity process() = 0;
  // The address at which the other processes of this host name memory of this one.
  virtual std::uint64_t address_of(void* data, std::size_t bytes) = 0;
  // Where this process loads and stores memory of `owner`. Null: it has other memory than `owner`.
  virtual std::byte* find_memory(const ProcessIdentity& owner, std::uint64_t address) = 0;
  // Copies into memory of another process of this host, which does nothing for it. An environment
  // error if that process has ended, has no such memory or does not allow it.
  virtual Status write_memory(const ProcessIdentity& owner, std::uint64_t address,
                              std::span<const std::byte> bytes) = 0;
  // The other way.
  virtual Status read_memory(const ProcessIdentity& owner, std::uint64_t address,
                             std::span<std::byte> bytes) = 0;
  // The same for two processes exactly if they can share memory.
  virtual std::string host_identity() = 0;
  // Of this host, that its processes may use.
  virtual int processors() = 0;

 protected:
  explicit World(Scheduler& scheduler) : scheduler_(&scheduler) {}
  virtual void drive(Task<void>& task) = 0;

 private:
  template <class T>
  static Task<void> keep(Task<T>& task, std::optional<T>& out) {
    out.emplace(co_await task);
  }

  Scheduler* scheduler_;
};

}  // namespace unisono::sys
