// What the ranks of other hosts say, for who looks into a running job from one host. A rank of each
// host asks those on its host (AskHost) and answers for them. Who asks reaches that rank over a
// connection of its own, which both ends prove the job's key on: links carry none of it, so that a
// large answer that nobody takes breaks none of them.
//
// Hosts are asked in a tree: a rank asks at most 20 hosts, and the rank that answers for one of
// them asks a range of those after it. Who is asked says at once that it asks on;
// where no rank of a host says so, others ask those after it, in a part of the time.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rank.h"
#include "comm/control/node.h"
#include "comm/control/tree.h"
#include "comm/join/roster.h"
#include "sys/local_client.h"

namespace unisono::comm {

// Which hosts, by their numbers in the roster, and how much of each record.
struct Survey {
  RankRange hosts;
  std::uint32_t entries = 0;
  std::uint32_t patience_ms = 0;  // for all of it
};
inline constexpr std::uint32_t most_survey_patience_ms = 10'000;
std::vector<std::byte> encode(const Survey& survey);
// Of a job on so many hosts.
Result<Survey> decode_survey(std::span<const std::byte> payload, int hosts);

// What is known of a rank.
struct SurveyAnswer {
  Rank rank;
  sys::LocalReply reply;  // its `why` has at most max_why_bytes
};
inline constexpr std::size_t max_why_bytes = 300;
// The answers of one rank and of those below it in the tree of hosts.
inline constexpr std::size_t max_survey_bytes = std::size_t{1} << 28;
// Answers that are too long for what is left of the limit become silence that says so.
std::vector<std::byte> encode(std::span<const SurveyAnswer> answers,
                              std::size_t most_bytes = max_survey_bytes);
// Of a job of so many ranks: in ascending order, each rank once.
Result<std::vector<SurveyAnswer>> decode_survey_answers(std::span<const std::byte> payload,
                                                        int ranks);

// Blocking: what the ranks of this host answer. The survey's hosts and patience are of no account.
using AskHost = std::function<std::vector<SurveyAnswer>(const Survey& survey)>;

// A rank's part, shared with the threads that answer.
class HostSurveys : public std::enable_shared_from_this<HostSurveys> {
 public:
  HostSurveys(std::shared_ptr<sys::World> world, const std::shared_ptr<ControlNode>& node,
              const Roster& roster, AskHost ask_host);

  // From now on this rank answers for its host. On the world's loop.
  void serve();
  // Blocking: the answers of all other hosts' ranks, in ascending order. One that gave none is
  // there with the reason.
  std::vector<SurveyAnswer> ask_others(std::uint32_t entries, std::uint32_t patience_ms);

 private:
  // Whether one more survey may be under way.
  bool enter();
  void leave() { at_once_.fetch_sub(1, std::memory_order_relaxed); }
  Status answer(std::unique_ptr<Channel>& channel, std::span<const std::byte> payload);
  // For threads other than the loop's. The last one to know the node has it end on the loop, to
  // which its connections belong.
  std::shared_ptr<ControlNode> node_for_a_thread() const;
  Error too_many() const;
  std::vector<SurveyAnswer> answer_for(const Survey& survey);

  const std::shared_ptr<sys::World> world_;
  const std::weak_ptr<ControlNode> node_;
  const Roster roster_;
  const AskHost ask_host_;
  std::atomic<int> at_once_{0};
};

}  // namespace unisono::comm
