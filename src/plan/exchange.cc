#include "plan/exchange.h"

#include <algorithm>

#include "plan/contents.h"

namespace unisono::plan {
namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Reads an exchange off what was sent and is held in the end, and accepts it if, done as exchange.h
// says, it sends and leaves exactly that.
class Recognition {
 public:
  Recognition(const Header& header, Contents& contents, const Movement& movement)
      : in_place_(header),
        contents_(contents),
        movement_(movement),
        ranks_(header.ranks),
        results_(index(ranks_)) {
    in_place_.in_place = true;
    out_.chunks_per_block = header.chunks_per_block;
    out_.has_equal_blocks = header.collective != Collective::all_to_all_v;
    for (int rank = 0; rank < ranks_; ++rank)
      out_.ranks.push_back({std::vector<Chunks>(index(ranks_)), std::vector<Chunks>(index(ranks_)),
                            std::vector<int>(), std::vector<int>(), false});
  }

  std::optional<Exchange> run() {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!find_sent(rank)) return std::nullopt;
    for (int rank = 0; rank < ranks_; ++rank)
      if (!find_result(rank)) return std::nullopt;
    for (int rank = 0; rank < ranks_; ++rank) find_takes(rank);
    if (!is_complete()) return std::nullopt;
    out_.copies_received = movement_.copies_received && !out_.reduces;
    for (int rank = 0; rank < ranks_; ++rank)
      at(rank).overwrites_in_place = overwrites_in_place(rank);
    return std::move(out_);
  }

 private:
  RankExchange& at(int rank) { return out_.ranks[index(rank)]; }
  std::vector<int>& result(int rank) { return results_[index(rank)]; }
  const std::vector<int>& outputs(int rank) const { return movement_.outputs[index(rank)]; }

  // What a rank gives of its input; then what it forwards, the same to each.
  bool find_sent(int rank) {
    for (int peer = 0; peer < ranks_; ++peer) {
      const auto sent = movement_.sent.find({rank, peer, 0});
      if (sent == movement_.sent.end()) continue;
      const auto is_given = [&](int content) {
        const auto addends = contents_.addends(content);
        return addends && addends->size() == 1 && addends->front().rank == rank;
      };
      const auto end = std::ranges::find_if_not(sent->second, is_given);
      if (end != sent->second.begin())
        at(rank).gives[index(peer)] = {contents_.addends(sent->second.front())->front().chunk,
                                       end - sent->second.begin()};
      const std::vector<int> forwarded(end, sent->second.end());
      if (forwarded.empty()) continue;
      if (!at(rank).forwards.empty() && forwarded != result(rank)) return false;
      result(rank) = forwarded;
      at(rank).forwards.push_back(peer);
      out_.hops = 2;
    }
    return true;
  }

  // Where a rank forwards nothing, its sums, but those that others forward to it.
  void find_own_sums(int rank) {
    for (const int content : outputs(rank)) {
      if (content == no_content) continue;
      const auto addends = contents_.addends(content);
      if (addends && addends->size() == 1) continue;
      if (!comes_forwarded(rank, content)) result(rank).push_back(content);
    }
  }

  bool comes_forwarded(int rank, int content) {
    for (int peer = 0; peer < ranks_; ++peer)
      if (forwards(peer, rank) && std::ranges::count(result(peer), content) > 0) return true;
    return false;
  }

  bool find_result(int rank) {
    if (at(rank).forwards.empty()) find_own_sums(rank);
    if (result(rank).empty()) return true;
    const auto addends = contents_.addends(result(rank).front());
    if (!addends) return false;
    for (const Contents::Addend& one : *addends) {
      at(rank).adds.push_back(one.rank);
      if (one.rank == rank)
        at(rank).gives[index(rank)] = {one.chunk, static_cast<std::int64_t>(result(rank).size())};
    }
    out_.reduces |= addends->size() > 1;
    begin_cyclically(at(rank).adds);
    return true;
  }

  // A sum of two has no order: the one with which ranks follow each other.
  void begin_cyclically(std::vector<int>& order) const {
    if (order.size() > 2 && (order[1] + 1) % ranks_ != order[2]) std::swap(order[0], order[1]);
  }

  // A rank that a chunk comes from stores as many as it gave.
  Chunks find_in_outputs(int rank, int first, std::int64_t count) const {
    const auto found = std::ranges::find(outputs(rank), first);
    if (found == outputs(rank).end()) return {};
    return {found - outputs(rank).begin(), count};
  }

  void find_takes(int rank) {
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::vector<int> wanted = stored(rank, peer);
      if (!wanted.empty())
        at(rank).takes[index(peer)] = find_in_outputs(rank, wanted.front(), std::ssize(wanted));
    }
    // What nobody asked for, it keeps.
    if (out_.reduces || !at(rank).adds.empty() || !at(rank).gives[index(rank)].empty()) return;
    for (const int content : outputs(rank)) {
      const auto addends = content == no_content ? std::nullopt : contents_.addends(content);
      if (!addends || addends->front().rank != rank) continue;
      Chunks& kept = at(rank).gives[index(rank)];
      if (is_taken(rank, content)) continue;
      if (kept.empty()) kept.first = addends->front().chunk;
      ++kept.count;
    }
    if (const Chunks& kept = at(rank).gives[index(rank)]; !kept.empty())
      at(rank).takes[index(rank)] =
          find_in_outputs(rank, contents_.initial(rank, kept.first), kept.count);
  }

  bool is_taken(int rank, int content) const {
    const auto found = std::ranges::find(outputs(rank), content) - outputs(rank).begin();
    return std::ranges::any_of(out_.ranks[index(rank)].takes, [&](const Chunks& chunks) {
      return chunks.first <= found && found < chunks.first + chunks.count;
    });
  }

  std::vector<int> given(int from, int to) {
    const Chunks& chunks = at(from).gives[index(to)];
    std::vector<int> out;
    for (std::int64_t i = 0; i < chunks.count; ++i)
      out.push_back(contents_.initial(from, chunks.first + i));
    return out;
  }

  bool forwards(int from, int to) { return std::ranges::count(at(from).forwards, to) > 0; }

  // What a rank stores of a peer, wherever.
  std::vector<int> stored(int rank, int peer) {
    if (peer == rank) return at(rank).adds.empty() ? given(rank, rank) : result(rank);
    if (forwards(peer, rank)) return result(peer);
    if (out_.reduces) return {};
    if (out_.hops == 1 && !at(peer).gives[index(rank)].empty()) return given(peer, rank);
    // A rank that gives the same to all keeps it once.
    return out_.hops == 2 ? given(rank, peer) : std::vector<int>();
  }

  bool is_result(int rank) {
    for (std::size_t i = 0; i < result(rank).size(); ++i) {
      int sum = no_content;
      for (const int adds : at(rank).adds) {
        const Chunks& chunks = at(adds).gives[index(rank)];
        if (chunks.count != std::ssize(result(rank))) return false;
        const int content = contents_.initial(adds, chunks.first + static_cast<std::int64_t>(i));
        sum = sum == no_content ? content : contents_.sum(sum, content);
      }
      if (sum != result(rank)[i]) return false;
    }
    return true;
  }

  // Whether a peer adds or stores what a rank gives it, and stores what the rank forwards.
  bool is_used(int rank, int peer) {
    const bool is_stored = !at(peer).takes[index(rank)].empty();
    const bool is_added = std::ranges::count(at(peer).adds, rank) > 0;
    if (forwards(rank, peer)) return is_stored && (is_added || given(rank, peer).empty());
    return is_added || is_stored;
  }

  bool is_complete() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!is_result(rank)) return false;
      std::vector<int> outputs(this->outputs(rank).size(), no_content);
      for (int peer = 0; peer < ranks_; ++peer) {
        std::vector<int> sent;
        if (peer != rank) sent = given(rank, peer);
        if (forwards(rank, peer)) sent.insert(sent.end(), result(rank).begin(), result(rank).end());
        const auto found = movement_.sent.find({rank, peer, 0});
        if (sent != (found == movement_.sent.end() ? std::vector<int>() : found->second))
          return false;
        if (!sent.empty() && !is_used(rank, peer)) return false;
        const Chunks& takes = at(rank).takes[index(peer)];
        if (takes.empty()) continue;
        const std::vector<int> wanted = stored(rank, peer);
        if (takes.first + takes.count > std::ssize(outputs) || takes.count != std::ssize(wanted))
          return false;
        std::ranges::copy(wanted, outputs.begin() + takes.first);
      }
      if (outputs != this->outputs(rank)) return false;
    }
    return true;
  }

  // Where a call in place has what a rank gives a peer, and what it stores of one.
  Storage given_at(int rank, int peer) {
    return storage_of(in_place_, rank, Buffer::input, at(rank).gives[index(peer)].first);
  }
  Storage taken_at(int rank, int peer) {
    return storage_of(in_place_, rank, Buffer::output, at(rank).takes[index(peer)].first);
  }
  // Whether what a rank stores of a peer is as long as what it gives it, and at the same place.
  bool is_returned(int rank, int peer) {
    return given_at(rank, peer) == taken_at(rank, peer) &&
           at(rank).gives[index(peer)].count == at(rank).takes[index(peer)].count;
  }
  // Whether a rank copies what it gives a peer, or itself, to where that peer's data would be.
  bool copies(int rank, int peer) {
    if (peer == rank) return at(rank).adds.empty();
    return out_.hops == 2 && !forwards(peer, rank);
  }

  // What comes from `writer`, or is copied or added here, may not land on what `reader` has not yet
  // read.
  bool overwrites_in_place(int rank) {
    for (int writer = 0; writer < ranks_; ++writer) {
      const std::int64_t landing = at(rank).takes[index(writer)].count;
      // What is copied onto itself stays as it is.
      if (landing == 0 || (copies(rank, writer) && is_returned(rank, writer))) continue;
      const Storage to = taken_at(rank, writer);
      // The n-th chunk of a sum is made of the n-th chunk of what each gives.
      const bool is_read_before =
          is_returned(rank, writer) && std::ranges::count(at(writer).adds, rank) > 0;
      for (int reader = 0; reader < ranks_; ++reader) {
        const std::int64_t unread = at(rank).gives[index(reader)].count;
        const Storage from = given_at(rank, reader);
        if (unread == 0 || to.buffer != from.buffer || (reader == writer && is_read_before))
          continue;
        if (Chunks{to.chunk, landing}.overlaps({from.chunk, unread})) return true;
      }
    }
    return false;
  }

  Header in_place_;
  Contents& contents_;
  const Movement& movement_;
  int ranks_;
  std::vector<std::vector<int>> results_;  // by rank: the contents of its result
  Exchange out_;
};

}  // namespace

bool Exchange::sends(int from, int to) const {
  const RankExchange& sender = ranks[index(from)];
  return from != to &&
         (!sender.gives[index(to)].empty() || std::ranges::count(sender.forwards, to) > 0);
}

bool Exchange::is_one_way() const {
  for (int from = 0; from < size(); ++from)
    for (int to = 0; to < size(); ++to)
      if (sends(from, to) && !sends(to, from)) return true;
  return false;
}

bool Exchange::has_segments() const {
  for (const RankExchange& rank : ranks) {
    const bool gives = !std::ranges::all_of(rank.gives, &Chunks::empty);
    if (!reduces && gives && !rank.adds.empty()) return false;
    for (std::size_t a = 0; a < ranks.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (rank.gives[a].overlaps(rank.gives[b])) return false;
  }
  return true;
}

bool Exchange::has_whole_blocks() const {
  const auto is_whole = [&](const Chunks& chunks) {
    return chunks.empty() ||
           (chunks.first % chunks_per_block == 0 && chunks.count == chunks_per_block);
  };
  return std::ranges::all_of(ranks, [&](const RankExchange& rank) {
    return std::ranges::all_of(rank.gives, is_whole) && std::ranges::all_of(rank.takes, is_whole);
  });
}

std::int64_t Exchange::longest_message() const {
  std::int64_t longest = 0;
  for (const RankExchange& rank : ranks)
    for (const Chunks& chunks : rank.gives) longest = std::max(longest, chunks.count);
  return longest;
}

std::optional<Exchange> exchange_of(const Plan& plan) {
  if (plan.header.channels != 1 || plan.header.ranks > exchange_max_ranks ||
      plan.header.collective == Collective::custom)
    return std::nullopt;
  Contents contents;
  const auto movement = movement_of(plan, contents);
  if (!movement) return std::nullopt;
  return Recognition(plan.header, contents, *movement).run();
}

std::shared_ptr<const Exchange> shared_exchange_of(const Plan& plan) {
  auto exchange = exchange_of(plan);
  return exchange ? std::make_shared<const Exchange>(std::move(*exchange)) : nullptr;
}

}  // namespace unisono::plan
