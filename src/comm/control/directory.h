// Where other ranks are. A rank keeps the addresses that it has a use for and asks for others: a
// look-up goes through the tree to the rank that is sought, or for its address alone to that rank's
// parent, and the answer back to who asked; at most twice the tree's depth of links each way.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/node.h"
#include "comm/control/tree.h"

namespace unisono::comm {

class Directory {
 public:
  Directory(ControlNode& node, TreePlace place);

  const TreePlace& place() const { return place_; }
  // The node has been told all addresses.
  void knows_all() { knows_all_ = true; }
  bool is_needed() const { return !knows_all_; }
  // What others learn who look this rank up; at most max_record_bytes.
  void publish(std::vector<std::byte> record) { own_record_ = std::move(record); }
  // What the rank has published.
  sys::Task<Result<std::vector<std::byte>>> look_up(int rank, std::int64_t deadline_ns);
  // Asks for an address; the node is told it. Asks again after a while, when it is called again.
  void seek_address(int rank);
  // A child's address has become known to the node, of which others may have asked before.
  void child_has_come(int child);
  // Of a link. False: it is malformed.
  bool on_frame(int peer, FrameKind kind, std::span<const std::byte> payload);

 private:
  void route(const LookUp& look_up);
  void answer(const LookUp& look_up);
  void await_child(int child, int asker);
  void take(const Found& found);
  void send(int to, FrameKind kind, std::vector<std::byte> payload);

  ControlNode& node_;
  const TreePlace place_;
  bool knows_all_ = false;
  std::vector<std::byte> own_record_;
  std::set<std::pair<int, int>> awaited_;          // a child that has not come, and who asked
  std::map<int, std::int64_t> asked_ns_;           // for addresses, when
  std::map<int, std::vector<std::byte>> records_;  // found, until they are taken
  std::map<int, int> wanted_;                      // look-ups that wait for a record
};

}  // namespace unisono::comm
