#include "comm/observe/survey.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/control/dial.h"
#include "comm/control/directory.h"
#include "sys/thread.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t ns_per_ms = 1'000'000;
constexpr int most_hosts_asked = 20;
// Ranks of a host that are tried. The next one is, when the one before has failed, or has not said
// for so long that it asks: a rank that makes no call looks at its connections ten times a second.
constexpr std::size_t most_tried = 8;
constexpr std::int64_t next_rank_after_ns = 250 * ns_per_ms;
constexpr std::int64_t ask_address_again_ns = 500 * ns_per_ms;
// What a rank keeps of its time for sending its answer on, and its host's ranks for theirs.
constexpr std::uint32_t kept_for_sending_ms = 200;
// Surveys that a rank answers or makes at once; others are refused.
constexpr int most_surveys = 4;

// Asks ranges of hosts, on the world's loop.
class Asking {
 public:
  Asking(std::shared_ptr<ControlNode> node, const Roster& roster, std::uint32_t entries,
         std::int64_t deadline_ns)
      : node_(std::move(node)),
        world_(node_->world()),
        roster_(roster),
        entries_(entries),
        deadline_ns_(deadline_ns) {
    for (int rank = 0; rank < roster_.ranks(); ++rank)
      ranks_of_host_[roster_.host_of(rank)].push_back(rank);
  }
  ~Asking() { tasks_.cancel_all(); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

  sys::Task<int> run(std::vector<RankRange> ranges) {
    for (const RankRange& range : ranges)
      begin(divide({range.first - 1, range.end}, most_hosts_asked));
    while (open_ > 0) {
      sys::Wait wait(world_.scheduler(), changed_, sys::no_deadline_ns);
      co_await wait;
    }
    tasks_.cancel_all();
    co_return 0;
  }
  std::vector<SurveyAnswer> take() {
    std::vector<SurveyAnswer> out;
    for (auto& [rank, answer] : answers_) out.push_back(std::move(answer));
    return out;
  }

 private:
  // What has become of the ranks of a host that were tried.
  struct Reached {
    std::optional<std::vector<SurveyAnswer>> answers;
    std::optional<int> asking;  // the rank that has said so
    std::map<int, sys::LocalReply> silent;
  };

  void begin(const std::vector<RankRange>& parts) {
    open_ += static_cast<int>(parts.size());
    for (const RankRange& part : parts) tasks_.spawn(ask(part));
  }
  sys::Task<void> ask(RankRange hosts);
  sys::Task<void> try_rank(int rank, RankRange hosts, std::int64_t until_ns,
                           std::shared_ptr<Reached> reached);
  sys::Task<Result<std::vector<SurveyAnswer>>> answers_of(int rank, RankRange hosts,
                                                          std::int64_t until_ns,
                                                          std::shared_ptr<Reached> reached);
  sys::Task<Result<sys::Address>> address_of(int rank, std::int64_t until_ns);
  void note(const SurveyAnswer& answer) { answers_.emplace(answer.rank.number(), answer); }
  // As note(), of every rank of a host that nothing is known of.
  void note_silence(int host, const std::string& why);

  const std::shared_ptr<ControlNode> node_;
  sys::World& world_;
  const Roster& roster_;
  const std::uint32_t entries_;
  const std::int64_t deadline_ns_;
  std::map<int, std::vector<int>> ranks_of_host_;
  std::map<int, SurveyAnswer> answers_;
  int open_ = 0;
  sys::WaitQueue changed_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

// The range's first host, which asks the others of the range; unless nobody there answers.
sys::Task<void> Asking::ask(RankRange hosts) {
  const std::vector<int>& ranks = ranks_of_host_[hosts.first];
  const std::int64_t now_ns = world_.now_ns();
  const std::int64_t until_ns =
      hosts.size() == 1 ? deadline_ns_ : now_ns + (deadline_ns_ - now_ns) * 2 / 3;
  const auto reached = std::make_shared<Reached>();
  const std::size_t most = std::min(ranks.size(), most_tried);
  for (std::size_t i = 0; i < most && !reached->answers && world_.now_ns() < until_ns; ++i) {
    tasks_.spawn(try_rank(ranks[i], hosts, until_ns, reached));
    const std::int64_t look_on_ns = world_.now_ns() + next_rank_after_ns;
    const auto next_ns = [&] {
      const bool is_last = i + 1 == most;
      return is_last || reached->asking ? until_ns : std::min(look_on_ns, until_ns);
    };
    while (!reached->answers && reached->silent.size() <= i && world_.now_ns() < next_ns()) {
      sys::Wait wait(world_.scheduler(), changed_, next_ns());
      co_await wait;
    }
  }
  if (reached->answers) {
    std::ranges::for_each(*reached->answers, [this](const SurveyAnswer& one) { note(one); });
    for (int host = hosts.first; host < hosts.end; ++host)
      note_silence(host, "is missing from what other hosts answered");
  } else {
    for (const auto& [rank, silent] : reached->silent)
      note({*Rank::among(rank, roster_.ranks()), silent});
    note_silence(hosts.first, "did not answer in time, nor did another rank on its host");
    if (hosts.size() > 1) begin(divide(hosts, most_hosts_asked));
  }
  --open_;
  changed_.notify_all();
}

void Asking::note_silence(int host, const std::string& why) {
  for (const int rank : ranks_of_host_[host])
    note({*Rank::among(rank, roster_.ranks()), {.why = why}});
}

sys::Task<void> Asking::try_rank(int rank, RankRange hosts, std::int64_t until_ns,
                                 std::shared_ptr<Reached> reached) {
  auto answers = co_await answers_of(rank, hosts, until_ns, reached);
  if (reached->asking == rank) reached->asking.reset();
  if (answers.ok()) {
    if (!reached->answers) reached->answers = std::move(*answers);
  } else {
    sys::LocalReply silent;
    const Error& error = answers.error();
    const bool is_dead = error.reason == FailureReason::refused;
    if (is_dead) silent.silence = sys::Silence::dead;
    silent.why = str(is_dead ? "has ended: " : "cannot be asked: ", error.message);
    if (error.timed_out) silent.why = "did not answer in time, nor did another rank on its host";
    reached->silent.emplace(rank, std::move(silent));
  }
  changed_.notify_all();
}

sys::Task<Result<sys::Address>> Asking::address_of(int rank, std::int64_t until_ns) {
  while (node_->known_address(rank) == nullptr) {
    if (world_.now_ns() >= until_ns)
      co_return timeout_error(rank, "where rank ", rank, " is could not be looked up in time");
    if (node_->has_directory()) node_->directory().seek_address(rank);
    sys::Wait wait(world_.scheduler(), node_->changed(),
                   std::min(until_ns, world_.now_ns() + ask_address_again_ns));
    co_await wait;
  }
  co_return sys::Address::parse(*node_->known_address(rank));
}

sys::Task<Result<std::vector<SurveyAnswer>>> Asking::answers_of(int rank, RankRange hosts,
                                                                std::int64_t until_ns,
                                                                std::shared_ptr<Reached> reached) {
  Result<sys::Address> address = co_await address_of(rank, until_ns);
  if (!address.ok()) co_return address.take_error();
  const Destination where{*address, Purpose::link, link_key(node_->job_key()), node_->wire()};
  const Attempt attempt = co_await dial_once(world_, where, until_ns, until_ns);
  if (!attempt.channel) co_return attempt.why;
  Channel& channel = *attempt.channel;
  Survey survey{hosts, entries_, 0};
  const std::int64_t left_ms = (until_ns - world_.now_ns()) / ns_per_ms - kept_for_sending_ms;
  survey.patience_ms = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left_ms, kept_for_sending_ms, most_survey_patience_ms));
  const std::vector<std::byte> payload = encode(survey);
  const MessageKey no_key;
  Status sent = co_await channel.write(FrameKind::survey, no_key, payload, until_ns);
  if (!sent.ok()) co_return sent.take_error();
  Result<Frame> frame = co_await channel.read(max_survey_bytes, until_ns);
  if (frame.ok() && frame->header.kind == FrameKind::surveying) {
    reached->asking = rank;
    changed_.notify_all();
    frame = co_await channel.read(max_survey_bytes, until_ns);
  }
  if (!frame.ok()) co_return frame.take_error();
  if (frame->header.kind == FrameKind::failure) {
    Result<ToldFailure> told = decode_failure(frame->payload, roster_.ranks());
    co_return told.ok() ? told->error : told.error();
  }
  if (frame->header.kind == FrameKind::bye) co_return peer_error(rank, "it has left the job");
  if (frame->header.kind != FrameKind::surveyed)
    co_return peer_error(rank, "it answered with the unexpected frame kind ",
                         static_cast<int>(frame->header.kind));
  Result<std::vector<SurveyAnswer>> answers =
      decode_survey_answers(frame->payload, roster_.ranks());
  if (!answers.ok()) co_return answers.take_error();
  // It tells of nobody for whom it was not asked.
  std::erase_if(*answers, [&](const SurveyAnswer& one) {
    return !hosts.contains(roster_.host_of(one.rank.number()));
  });
  co_return std::move(answers);
}

}  // namespace

HostSurveys::HostSurveys(std::shared_ptr<sys::World> world,
                         const std::shared_ptr<ControlNode>& node, const Roster& roster,
                         AskHost ask_host)
    : world_(std::move(world)), node_(node), roster_(roster), ask_host_(std::move(ask_host)) {}

void HostSurveys::serve() {
  const auto node = node_.lock();
  if (!node) return;
  node->serve_surveys([self = weak_from_this()](std::unique_ptr<Channel>& channel,
                                                std::span<const std::byte> payload) -> Status {
    const auto surveys = self.lock();
    return surveys ? surveys->answer(channel, payload)
                   : environment_error("this rank answers no surveys any more");
  });
}

bool HostSurveys::enter() {
  // Relaxed: it orders nothing else.
  if (at_once_.fetch_add(1, std::memory_order_relaxed) < most_surveys) return true;
  leave();
  return false;
}

Error HostSurveys::too_many() const {
  const auto node = node_.lock();
  return environment_error("rank ", node ? node->rank() : -1, " makes or answers ", most_surveys,
                           " surveys already");
}

std::shared_ptr<ControlNode> HostSurveys::node_for_a_thread() const {
  auto node = node_.lock();
  if (!node) return nullptr;
  ControlNode* const which = node.get();
  return {which, [world = world_, node = std::move(node)](ControlNode*) mutable {
            world->run([](std::shared_ptr<ControlNode> last) -> sys::Task<int> {
              last.reset();
              co_return 0;
            }(std::move(node)));
          }};
}

std::vector<SurveyAnswer> HostSurveys::ask_others(std::uint32_t entries,
                                                  std::uint32_t patience_ms) {
  const auto node = node_for_a_thread();
  if (!node || roster_.hosts() == 1) return {};
  const int own = roster_.host_of(node->rank());
  if (!enter()) {
    std::vector<SurveyAnswer> nobody;
    for (int rank = 0; rank < roster_.ranks(); ++rank)
      if (roster_.host_of(rank) != own)
        nobody.push_back({*Rank::among(rank, roster_.ranks()),
                          {.why = str("was not asked: ", too_many().message)}});
    return nobody;
  }
  Asking asking(node, roster_, entries, world_->now_ns() + patience_ms * ns_per_ms);
  std::vector<RankRange> ranges;
  for (const RankRange& range : {RankRange{0, own}, RankRange{own + 1, roster_.hosts()}})
    if (range.size() > 0) ranges.push_back(range);
  world_->run(asking.run(std::move(ranges)));
  leave();
  return asking.take();
}

// What the ranks of this host and of the hosts after it say, in a thread of its own.
std::vector<SurveyAnswer> HostSurveys::answer_for(const Survey& survey) {
  const auto node = node_for_a_thread();
  if (!node) return {};
  Survey here = survey;
  here.patience_ms -= std::min(here.patience_ms / 2, kept_for_sending_ms);
  Asking asking(node, roster_, survey.entries, world_->now_ns() + survey.patience_ms * ns_per_ms);
  std::vector<RankRange> ranges;
  if (survey.hosts.size() > 1) ranges.push_back({survey.hosts.first + 1, survey.hosts.end});
  std::vector<SurveyAnswer> answers;
  auto local = sys::start_thread("asks the ranks of this host", [&] { answers = ask_host_(here); });
  if (!ranges.empty()) world_->run(asking.run(std::move(ranges)));
  if (local.ok()) local->join();
  for (SurveyAnswer& one : answers)
    if (!one.reply.why.empty()) one.reply.why += str(", on host ", node->address().host);
  for (SurveyAnswer& one : asking.take()) answers.push_back(std::move(one));
  if (!local.ok())
    for (int rank = 0; rank < roster_.ranks(); ++rank)
      if (roster_.host_of(rank) == survey.hosts.first)
        answers.push_back({*Rank::among(rank, roster_.ranks()),
                           {.why = str("was not asked on its host: ", local.error().message)}});
  std::ranges::sort(answers, {}, [](const SurveyAnswer& one) { return one.rank.number(); });
  return answers;
}

Status HostSurveys::answer(std::unique_ptr<Channel>& channel, std::span<const std::byte> payload) {
  const Result<Survey> survey = decode_survey(payload, roster_.hosts());
  const auto node = node_.lock();
  if (!survey.ok() || !node || survey->hosts.first != roster_.host_of(node->rank()))
    return environment_error("it sent a survey that is not for this rank's host");
  if (!enter()) return too_many();
  auto take_on = [](Channel& to, std::int64_t until_ns) -> sys::Task<Status> {
    const MessageKey no_key;
    co_return co_await to.write(FrameKind::surveying, no_key, {}, until_ns);
  };
  // Channels live on the loop, and so end there.
  auto respond = [](std::unique_ptr<Channel> to, std::vector<std::byte> answers,
                    std::int64_t until_ns) -> sys::Task<int> {
    const MessageKey no_key;
    Status told = co_await to->write(FrameKind::surveyed, no_key, answers, until_ns);
    if (told.ok()) co_await to->wait_for_end(until_ns);
    to.reset();
    co_return 0;
  };
  auto held = std::make_shared<std::unique_ptr<Channel>>(std::move(channel));
  auto thread = sys::start_thread(
      "answers for this host",
      [self = shared_from_this(), asked = *survey, held, take_on, respond] {
        // Who asked may have gone; that shows again when it is answered.
        static_cast<void>(self->world_->run(
            take_on(**held, self->world_->now_ns() + kept_for_sending_ms * ns_per_ms)));
        const std::vector<std::byte> answers = encode(self->answer_for(asked));
        const std::int64_t until_ns = self->world_->now_ns() + asked.patience_ms * ns_per_ms;
        self->world_->run(respond(std::move(*held), answers, until_ns));
        self->leave();
      });
  if (!thread.ok()) {
    leave();
    channel = std::move(*held);
    return thread.take_error();
  }
  thread->detach();
  return {};
}

}  // namespace unisono::comm
