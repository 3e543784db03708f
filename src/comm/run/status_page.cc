#include "comm/run/status_page.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/rank.h"
#include "base/str.h"
#include "sys/shared_memory.h"
#include "transport/fault.h"

namespace unisono::comm {
namespace {

// A peer may have stored any number.
FailureReason told_reason(FailureReason reason) {
  return static_cast<std::size_t>(reason) < failure_reason_count ? reason : FailureReason::unknown;
}

}  // namespace

StatusPage::StatusPage(sys::World& world, const std::string& name, int rank,
                       std::vector<int> neighbours, int ranks)
    : neighbours_(std::move(neighbours)),
      ranks_(ranks),
      name_(str(sys::handshake_prefix, "page-", name)),
      world_(world) {
  const auto own = std::find(neighbours_.begin(), neighbours_.end(), rank);
  own_ = static_cast<std::size_t>(own - neighbours_.begin());
  if (neighbours_.size() == 1) return;
  auto memory = world_.share_memory(name_, neighbours_.size() * sizeof(Line));
  if (!memory.ok()) {
    log(LogLevel::info,
        "timeout errors will not name the ranks that have not joined: ", memory.error().message);
    return;
  }
  memory_ = std::move(*memory);
  own_line_ = &line_of(own_);
  own_line_->process = sys::this_process();
}

StatusPage::~StatusPage() {
  // A start that fails leaves nothing; the others, which fail with it, remove what they make later.
  if (memory_ && !at_exit_) world_.remove_shared_name(name_);
}

void StatusPage::all_have_joined() {
  if (!memory_) return;
  world_.remove_shared_name(name_);
  at_exit_.emplace([this] { leave(Departure::exit); });
}

// Relaxed: it is read once the process has ended, or for its own sake.
void StatusPage::leave(Departure how) {
  own_line_->departure.store(how, std::memory_order_relaxed);
}

Error StatusPage::ended_process(std::size_t neighbour) const {
  const int rank = neighbours_[neighbour];
  const Line& line = line_of(neighbour);
  if (line.departure.load(std::memory_order_relaxed) == Departure::exit)
    return peer_failure(FailureReason::left, rank, "rank ", rank, " left: its process ",
                        line.process.pid, " has exited");
  return peer_failure(FailureReason::gone, rank, "rank ", rank, " failed: its process ",
                      line.process.pid, " has ended");
}

std::optional<Error> StatusPage::died(Departure least) {
  if (!memory_) return std::nullopt;
  if (watches_.empty())
    for (std::size_t i = 0; i < neighbours_.size(); ++i) {
      const sys::ProcessIdentity process = line_of(i).process;
      watches_.push_back(process == sys::this_process() ? sys::ProcessWatch()
                                                        : sys::ProcessWatch(process));
    }
  for (std::size_t from = 0; from < watches_.size();) {
    const auto found = sys::ProcessWatch::first_ended(std::span(watches_).subspan(from));
    if (!found) return std::nullopt;
    const std::size_t ended = from + *found;
    if (line_of(ended).departure.load(std::memory_order_relaxed) < least)
      return ended_process(ended);
    from = ended + 1;
  }
  return std::nullopt;
}

StatusPage::Line& StatusPage::line_of(std::size_t neighbour) const {
  if (!memory_) return *lonely_;
  // Zeroed memory is a valid atomic of value 0 on every platform that this library runs on.
  return *reinterpret_cast<Line*>(memory_.get() + neighbour * sizeof(Line));
}

std::vector<int> StatusPage::absent() const {
  std::vector<int> out;
  if (!memory_) return out;
  for (std::size_t i = 0; i < neighbours_.size(); ++i)
    if (i != own_ && line_of(i).started.load(std::memory_order_relaxed) < started())
      out.push_back(neighbours_[i]);
  return out;
}

// The earliest, which the later ones follow from.
std::optional<StatusPage::OtherCall> StatusPage::other_call() const {
  if (!memory_) return std::nullopt;
  const std::uint64_t shown = own_line_->kept.shown();
  for (std::uint64_t number = shown - std::min<std::uint64_t>(shown, KeptCalls::kept);
       number < shown; ++number) {
    const auto ours = own_line_->kept.find(number);
    for (std::size_t i = 0; ours && i < neighbours_.size(); ++i)
      if (const auto theirs = line_of(i).kept.find(number); theirs && *theirs != *ours)
        return OtherCall{.rank = neighbours_[i], .theirs = *theirs, .ours = *ours};
  }
  return std::nullopt;
}

std::optional<StatusPage::OtherCall> StatusPage::other_launched(const CallId& ours) const {
  const auto captures = [](const Line& line) {
    return line.captures.load(std::memory_order_relaxed);
  };
  if (!memory_ || captures(*own_line_)) return std::nullopt;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    const Line& line = line_of(i);
    auto theirs = line.launches.find(ours.number);
    if (!theirs) theirs = line.kept.find(ours.number);
    if (theirs && *theirs != ours && !captures(line))
      return OtherCall{.rank = neighbours_[i], .theirs = *theirs, .ours = ours};
  }
  return std::nullopt;
}

bool StatusPage::has_line(int rank) const {
  return memory_ != nullptr && std::ranges::binary_search(neighbours_, rank);
}

std::shared_ptr<const KeptCalls> StatusPage::kept_calls() const {
  if (memory_) return {memory_, &own_line_->kept};
  return {lonely_, &lonely_->kept};
}

// A fault is one word; but who sees it, or that this rank has closed a connection, shall see why,
// too: release here, acquire in told().
void StatusPage::give_up(const transport::Fault& fault, const Error& why) {
  own_line_->why.set(why.message);
  own_line_->reason = why.reason;
  own_line_->finder = why.finder;
  own_line_->call = why.call;
  own_line_->fault.store(transport::pack(fault), std::memory_order_release);
}

std::optional<Error> StatusPage::told() const {
  if (!memory_) return std::nullopt;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    if (i == own_) continue;
    const std::uint64_t word = line_of(i).fault.load(std::memory_order_acquire);
    if (word == 0) continue;
    const auto fault = transport::unpack_fault(word, ranks_);
    if (!fault) return transport::impossible_fault(neighbours_[i], word, ranks_);
    if (fault->kind == transport::Fault::Kind::disagreed)
      return peer_failure(FailureReason::mismatch, -1, "rank ", neighbours_[i],
                          " aborted the call: ", line_of(i).why.text());
    Error error = transport::told_error(neighbours_[i], *fault);
    // Connections tell that alone, the page also why.
    if (std::string why = line_of(i).why.text(); !error.aborted && !why.empty())
      error.message = std::move(why);
    error.reason = told_reason(line_of(i).reason);
    const auto finder = Rank::among(line_of(i).finder, ranks_);
    error.finder = finder ? finder->number() : -1;
    error.call = std::max<std::int64_t>(line_of(i).call, -1);
    return error;
  }
  return std::nullopt;
}

std::size_t StatusPage::memory_bytes() const {
  return memory_ ? neighbours_.size() * sizeof(Line) : 0;
}

}  // namespace unisono::comm
