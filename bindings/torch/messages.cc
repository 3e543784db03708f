// Point to point, and the monitored barrier, which is made of it.

#include <algorithm>

#include "backend.h"
#include "errors.h"
#include "profile.h"

namespace unisono::pytorch {
namespace {

// The tag of the monitored barrier's messages, which is no user's.
constexpr int barrier_tag = max_tag;
// How much longer than rank 0 the others wait: it answers when its own patience ends.
constexpr std::chrono::seconds grace(2);

Status error_if_any(const std::vector<std::int64_t>& missing, std::chrono::nanoseconds patience) {
  if (missing.empty()) return {};
  std::ostringstream list;
  for (std::size_t i = 0; i < missing.size(); ++i) list << (i == 0 ? "" : ", ") << missing[i];
  const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  return Error{.kind = ErrorKind::peer,
               .timed_out = true,
               .peer = static_cast<int>(missing.front()),
               .message = c10::str(missing.size() == 1 ? "Rank " : "Ranks ", list.str(),
                                   " failed to pass monitoredBarrier in ", limit_ms,
                                   " ms; these ranks have not reached the barrier: ", list.str())};
}

Message message_of(bool is_send, const at::Tensor& row, int peer, int tag) {
  const Element element = element_of(row);
  return {.is_send = is_send,
          .send_data = is_send ? row.data_ptr() : nullptr,
          .recv_data = is_send ? nullptr : row.data_ptr(),
          .count = row.numel() * element.width,
          .type = element.type,
          .peer = peer,
          .tag = tag};
}

}  // namespace

Backend::Started Backend::start_message(c10d::OpType type, const char* name,
                                        const at::Tensor& tensor, Message message) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Site here = site(name);
  if (message.tag == barrier_tag)
    refuse_parts(here.text(), " got the tag ", message.tag, "; it must be 0 to ", max_tag - 1);
  Holding holding;
  const at::Tensor row =
      message.is_send ? input_row(tensor, holding) : output_row(tensor, holding, name);
  const Message filled = message_of(message.is_send, row, message.peer, message.tag);
  if (is_profiled() && message.is_send) holding.given.push_back(tensor);
  Batch* const batch = batches_.own();
  if (batch) check_batch(*batch, row.device(), here);
  const bool is_refused_on_devices = row.is_cuda() && message.peer == any_source;
  if (batch && !is_refused_on_devices) return put_off(*batch, filled, std::move(holding));
  if (row.is_cuda())
    return start_on_device(type, name, row.device(), std::span(&filled, 1), std::move(holding));
  const auto work = follow(type, name, std::move(holding));
  return begun(work, {submit(name, std::span(&filled, 1), timeout_.load())});
}

Backend::Started Backend::send(Tensors& tensors, int peer, int tag) {
  return start_message(c10d::OpType::SEND, "send", only(tensors, site("send")),
                       {.is_send = true, .peer = peer, .tag = tag});
}

Backend::Started Backend::recv(Tensors& tensors, int peer, int tag) {
  if (peer < 0)
    refuse_parts(site("recv").text(), " got the source ", peer, "; it must be 0 to ", size_ - 1);
  return start_message(c10d::OpType::RECV, "recv", only(tensors, site("recv")),
                       {.is_send = false, .peer = peer, .tag = tag});
}

Backend::Started Backend::recvAnysource(Tensors& tensors, int tag) {
  return start_message(c10d::OpType::RECVANYSOURCE, "recv", only(tensors, site("recv")),
                       {.is_send = false, .peer = any_source, .tag = tag});
}

void Backend::startCoalescing() {
  if (batches_.open()) return;
  drop_batch();
  refuse(where("startCoalescing") +
         ": this thread had started coalescing already; that batch is dropped, and its messages "
         "are not sent");
}

Backend::Started Backend::endCoalescing() {
  std::optional<Batch> batch = batches_.take();
  if (!batch) refuse(where("endCoalescing") + ": this thread has not started coalescing");
  Hooks::Keys parts = std::move(batch->parts);
  parts.insert(parts.end(), batch->message_parts.begin(), batch->message_parts.end());
  const char* const name = "coalesced";
  if (batch->device && batch->device->is_cuda())
    return start_on_device(c10d::OpType::COALESCED, name, *batch->device, batch->messages,
                           std::move(batch->holding), std::move(parts));
  Communicator& members = connected(name);
  const auto work = follow(c10d::OpType::COALESCED, name, std::move(batch->holding));
  const CallOptions options{.timeout = timeout_.load()};
  Status refused;
  const auto start = [&](std::span<const Message> messages) {
    if (messages.empty() || !refused.ok()) return;
    auto started = members.submit(messages, options);
    if (started.ok())
      batch->calls.push_back(std::move(*started));
    else
      refused = started.error();
  };
  start(batch->messages);
  for (const Message& message : batch->from_any) start(std::span(&message, 1));
  // What was started before a refused message keeps its memory until it ends.
  const Started out = begun(work, std::move(batch->calls), std::move(parts));
  check(refused, name);
  return out;
}

void Backend::drop_batch() {
  std::optional<Batch> batch = batches_.take();
  if (!batch || batch->calls.empty()) return;
  // Its collectives have been started, and use their memory until they end.
  const auto work = follow(c10d::OpType::COALESCED, "coalesced", std::move(batch->holding));
  begun(work, std::move(batch->calls), std::move(batch->parts));
}

// Every rank reports to rank 0, which answers with the ranks that have not. So all that came learn
// who is missing.
// That ranks are missing is its answer, and no failure that hooks hear of.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  if (size_ == 1) return;
  ++sequence_;
  if (options.timeout.count() < 0 && options.timeout != c10d::kUnsetTimeout)
    refuse_parts(site("monitored_barrier").text(), " got the timeout ", options.timeout.count(),
                 " ms; it must be 0 or more");
  // 0 asks who is there now.
  const auto patience = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  if (rank_ == 0)
    await_all(patience);
  else
    report_to_first(patience);
}

void Backend::await_all(std::chrono::nanoseconds patience) {
  const char* const name = "monitored_barrier";
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto left = [deadline] {
    return std::max<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now(),
                                              std::chrono::nanoseconds::zero());
  };
  const at::Tensor reports = at::zeros({size_}, at::kLong);
  const at::Tensor answer = at::zeros({size_}, at::kLong);  // 1: missing
  std::vector<Started> arrivals;
  for (int peer = 1; peer < size_; ++peer) {
    Holding holding;
    holding.inputs.push_back(reports);
    const Message message = message_of(false, reports.narrow(0, peer, 1), peer, barrier_tag);
    // Outlives this call if the rank is missing; the group is of no use then.
    const auto work = follow(c10d::OpType::BARRIER, name, std::move(holding));
    arrivals.push_back(
        begun(work, {submit(name, std::span(&message, 1), 2 * patience + 2 * grace)}));
  }
  std::vector<std::int64_t> missing;
  std::vector<Message> answers;
  for (int peer = 1; peer < size_; ++peer) {
    auto& arrival = static_cast<Work&>(*arrivals[static_cast<std::size_t>(peer - 1)]);
    if (arrival.drive(left())) {
      arrival.wait();
      answers.push_back(message_of(true, answer, peer, barrier_tag));
    } else {
      missing.push_back(peer);
      answer[peer] = 1;
    }
  }
  if (!answers.empty()) check(submit(name, answers, patience + grace).wait(), name);
  pytorch::check(error_if_any(missing, patience), where(name));
}

void Backend::report_to_first(std::chrono::nanoseconds patience) {
  const char* const name = "monitored_barrier";
  Holding holding;
  const at::Tensor report = at::ones({1}, at::kLong);
  const at::Tensor answer = at::zeros({size_}, at::kLong);
  holding.inputs = {report, answer};
  const std::array messages{message_of(true, report, 0, barrier_tag),
                            message_of(false, answer, 0, barrier_tag)};
  const auto work = follow(c10d::OpType::BARRIER, name, std::move(holding));
  begun(work, {submit(name, messages, 2 * patience + 2 * grace)});
  if (!work->drive(patience + grace))
    raise({.kind = ErrorKind::peer,
           .timed_out = true,
           .peer = 0,
           .message = "rank 0 has not answered; it has not reached the barrier"},
          where(name));
  work->wait();
  std::vector<std::int64_t> missing;
  for (std::int64_t peer = 0; peer < size_; ++peer)
    if (answer[peer].item<std::int64_t>() != 0) missing.push_back(peer);
  pytorch::check(error_if_any(missing, patience), where(name));
}

}  // namespace unisono::pytorch
