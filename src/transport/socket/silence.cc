#include "transport/socket/silence.h"

#include <algorithm>

namespace unisono::transport::socket {

void Silence::look(std::int64_t now_ns, std::span<const std::optional<Answers>> answers) {
  const bool was_away = now_ns - looked_ns_ > most_between_looks_ns;
  looked_ns_ = now_ns;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Watched& stream = streams_[i];
    stream.answers = answers[i];
    if (!stream.answers || !stream.answers->waits) {
      stream.unanswered_since_ns.reset();
      continue;
    }
    if (was_away || !stream.unanswered_since_ns ||
        stream.answers->last_ns > *stream.unanswered_since_ns)
      stream.unanswered_since_ns = now_ns;
  }
}

std::int64_t Silence::silent_ns(std::size_t stream) const {
  const auto& since = streams_[stream].unanswered_since_ns;
  return since ? looked_ns_ - *since : 0;
}

bool Silence::other_answers(std::size_t stream) const {
  const std::int64_t since = *streams_[stream].unanswered_since_ns;
  return std::ranges::any_of(streams_, [&](const Watched& other) {
    return &other != &streams_[stream] && other.answers && other.answers->last_ns > since;
  });
}

bool Silence::is_over(std::size_t stream) const {
  const Watched& watched = streams_[stream];
  if (!watched.unanswered_since_ns) return false;
  const std::int64_t limit = watched.answers->link_is_down ? link_down_ns : limit_ns;
  return silent_ns(stream) >= limit && other_answers(stream);
}

bool Silence::must_ask(std::size_t stream) const {
  const Watched& asked = streams_[stream];
  if (!asked.answers || asked.answers->waits) return false;
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (i != stream && is_suspect(i) && !other_answers(i)) return true;
  return false;
}

}  // namespace unisono::transport::socket
