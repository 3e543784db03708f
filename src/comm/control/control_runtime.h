// The groups of one process share this: the world, the node in it, and who serves it outside of
// calls.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "comm/control/node.h"
#include "sys/exit.h"

namespace unisono::comm {

// The node goes before the world that it lives in.
class ControlRuntime {
 public:
  explicit ControlRuntime(std::shared_ptr<sys::World> world) : world_(std::move(world)) {}
  ~ControlRuntime() {
    at_exit_.reset();
    if (!server_) return;
    world_->post([this] {
      is_over_ = true;
      over_.notify_all();
    });
    server_->join();
  }

  sys::World& world() { return *world_; }
  const std::shared_ptr<sys::World>& shared_world() const { return world_; }
  const std::shared_ptr<ControlNode>& node() const { return node_; }
  void set_node(std::shared_ptr<ControlNode> node) {
    node_ = std::move(node);
    // A program that ends in order need not have destroyed its communicators.
    if (world_->is_real())
      at_exit_.emplace([this] { world_->post([node = node_] { node->say_bye(); }); });
  }
  // From now on other ranks' look-ups are answered also outside of calls.
  Status serve_always() {
    UNISONO_ASSIGN(server_, world_->start_thread("answering other ranks' look-ups",
                                                 [this] { world_->run(wait_until_over()); }));
    return {};
  }

 private:
  sys::Task<bool> wait_until_over() {
    while (!is_over_) {
      sys::Wait wait(world_->scheduler(), over_, sys::no_deadline_ns);
      co_await wait;
    }
    co_return true;
  }

  std::shared_ptr<sys::World> world_;
  std::shared_ptr<ControlNode> node_;
  std::optional<sys::AtExit> at_exit_;
  // On the loop.
  sys::WaitQueue over_;
  bool is_over_ = false;
  std::unique_ptr<sys::Thread> server_;
};

}  // namespace unisono::comm
