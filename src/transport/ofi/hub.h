// What the connections of one transport share: the endpoint, its completion queue, and the ends,
// those that have closed and are still written to among them.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/ofi/end.h"
#include "transport/ofi/endpoint.h"

namespace unisono::transport::ofi {

class Hub {
 public:
  static Result<std::shared_ptr<Hub>> make(const TransportOptions& options,
                                           std::string_view provider);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Everything below needs it.
  std::mutex& mutex() { return mutex_; }
  std::string address() const;
  int descriptor() const { return endpoint_->descriptor(); }

  Result<std::shared_ptr<End>> open(const ConnectionRequest& request);
  // The connection of `end` is destroyed.
  void close(const std::shared_ptr<End>& end);
  // Reads what has completed and sends what waits.
  void progress();
  // Unless another connection has since this one's last time, which `looks` remembers.
  void progress_in_turn(std::uint64_t& looks) {
    if (looks == looks_) progress();
    looks = looks_;
  }
  // Sends what one end has to send.
  void push(End& end);
  void tell(End& end, MessageType type, Note note, std::uint64_t put = 0);
  // This end is given up for what the peer did, or for what happened here, and the peer is told.
  void refuse(End& end, Error error);
  Endpoint& endpoint() { return *endpoint_; }
  // When an end was last told that nothing of its own moved for too long.
  std::int64_t gave_up_ns() const { return gave_up_ns_; }
  void give_up_at(std::int64_t now_ns) { gave_up_ns_ = now_ns; }

 private:
  struct Operation {
    enum class Kind : std::uint8_t { receive, send, write, announcement };
    fi_context2 for_provider{};
    Kind kind = Kind::receive;
    std::shared_ptr<End> end;  // unless it receives
    std::uint64_t put = 0;     // of a write, an announcement, or a value that is sent; else 0
    std::uint64_t number = 0;  // of writes and announcements of all ends, in order
    std::array<std::byte, most_message_bytes> bytes{};
    std::size_t count = 0;       // of bytes that it received or writes
    void* descriptor = nullptr;  // of the bytes
  };
  // The provider knows the memory of all of them by one registration.
  using Block = std::array<Operation, 64>;

  Hub(const Key& key, std::unique_ptr<Endpoint> endpoint);
  Status post_receives();
  Status post_receive(Operation& operation);
  void post_waiting_receives();
  Result<fi_addr_t> resolve(std::string_view peer_address);
  Result<std::uint32_t> free_number() const;
  void read_completions();
  void read_error();
  bool fail_landing(int code);
  void suspect(int code);
  void find_suspect();
  void complete(Operation& operation);
  void read_ring(End& end);
  bool arrive(End& end, std::uint32_t immediate);
  void on_message(std::span<const std::byte> bytes);
  void on_meeting(const Message& message, std::span<const std::byte> bytes);
  void on_note(End& end, const Message& message);
  void on_offer(End& end, const Note& offer);
  void on_get(End& end, const Note& get);
  void join(End& end, const Message& message);
  void send(End& end, const Message& message, std::uint64_t put = 0);
  void push_messages(End& end);
  void push_writes(End& end);
  bool push_owed(End& end);
  Status lend_source(End& end, Outbox::Next& next);
  bool travels_apart(const End& end, std::size_t bytes) const;
  Posted post(End& end, Write write, Operation& operation);
  Posted post(End& end, const Announcement& announcement, Operation& operation);
  Posted submit(End& end, const Write& write, Operation& operation);
  void fail(End& end, Error error);
  void lose(End& end, Error error);
  void sweep_closed();
  bool is_finished(End& end);

  Status add_operations();
  Operation* take(Operation::Kind kind, const std::shared_ptr<End>& end);
  void give_back(Operation& operation);
  std::shared_ptr<End> find(std::uint32_t number) const;

  std::mutex mutex_;
  Key key_;
  std::uint64_t host_;
  std::unique_ptr<Endpoint> endpoint_;
  std::map<std::string, fi_addr_t, std::less<>> addresses_;
  std::map<std::uint32_t, std::shared_ptr<End>> ends_;  // by number
  std::uint32_t last_number_ = 0;
  std::size_t closed_ = 0;  // of ends_
  std::vector<std::unique_ptr<Block>> operations_;
  std::vector<Operation*> free_;
  std::vector<Operation*> waiting_receives_;
  // An error that does not say whose write has failed: one of those up to a number.
  struct Suspicion {
    int code = 0;
    std::uint64_t last = 0;
    std::int64_t since_ns = 0;
  };
  std::optional<Suspicion> suspicion_;
  std::uint64_t last_post_ = 0;
  std::uint64_t looks_ = 0;
  int empty_looks_ = 0;
  std::int64_t gave_up_ns_ = INT64_MIN / 2;
};

}  // namespace unisono::transport::ofi
