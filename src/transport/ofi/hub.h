// What the connections of one transport share: the endpoint, its completion queue, and the ends,
// those that have closed and are still written to among them.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
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
  void tell(End& end, MessageType type, Note note);
  // This end is given up for what the peer did, or for what happened here, and the peer is told.
  void refuse(End& end, Error error);
  Endpoint& endpoint() { return *endpoint_; }

 private:
  struct Operation {
    enum class Kind : std::uint8_t { receive, send, write };
    fi_context2 for_provider{};
    Kind kind = Kind::receive;
    std::shared_ptr<End> end;  // of a send or write
    std::uint64_t put = 0;
    std::array<std::byte, most_message_bytes> bytes{};
    std::size_t count = 0;
  };

  Hub(const Key& key, std::unique_ptr<Endpoint> endpoint);
  Status post_receives();
  Result<fi_addr_t> resolve(std::string_view peer_address);
  Result<std::uint32_t> free_number() const;
  void read_completions();
  void read_error();
  void fail_landing(int code);
  void complete(Operation& operation);
  void on_immediate(std::uint32_t word);
  void on_message(std::span<const std::byte> bytes);
  void on_meeting(const Message& message, std::span<const std::byte> bytes);
  void on_note(End& end, const Message& message);
  void on_offer(End& end, const Note& offer);
  void on_get(End& end, const Note& get);
  void join(End& end, const Message& message);
  void send(End& end, const Message& message);
  void push_messages(End& end);
  void push_writes(End& end);
  bool push_owed(End& end);
  Posted post(End& end, Write write, Operation& operation);
  void fail(End& end, Error error);
  void lose(End& end, Error error);
  void sweep_closed();
  bool is_finished(End& end);

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
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_;
  std::uint64_t looks_ = 0;
  int empty_looks_ = 0;
};

}  // namespace unisono::transport::ofi
