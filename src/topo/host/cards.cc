#include "topo/host/cards.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/str.h"

namespace unisono::topo {
namespace {

constexpr std::int64_t slowest_part = 4;

// The cards that a place may use: all are equally far.
struct Near {
  Distance distance = Distance::sys;
  std::vector<std::size_t> cards;
};

std::vector<std::size_t> usable(std::span<const Card> cards) {
  std::int64_t fastest = 0;
  for (const Card& card : cards)
    if (card.is_up) fastest = std::max(fastest, card.mbit_per_second);
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::int64_t speed = cards[i].mbit_per_second;
    if (cards[i].is_up && (speed == 0 || speed >= fastest / slowest_part)) out.push_back(i);
  }
  return out;
}

Near near_to(const Place& place, std::span<const Card> cards,
             const std::vector<std::size_t>& allowed) {
  Near out;
  for (const std::size_t card : allowed) {
    const Distance distance = distance_between(place, cards[card].place);
    if (distance < out.distance) {
      out.distance = distance;
      out.cards.clear();
    }
    if (distance == out.distance) out.cards.push_back(card);
  }
  return out;
}

class Assignment {
 public:
  Assignment(std::span<const Place> places, std::span<const Card> cards)
      : cards_(cards), users_(cards.size()), given_(places.size()) {
    const std::vector<std::size_t> allowed = usable(cards);
    for (const Place& place : places) near_.push_back(near_to(place, cards, allowed));
  }

  std::vector<std::vector<NearCard>> run() {
    // Nearest first: a place that has cards behind its own switch does not lose them to one for
    // which all cards are equally far.
    for (int level = 0; level < distance_count; ++level) {
      std::vector<std::size_t> places;
      for (std::size_t place = 0; place < near_.size(); ++place)
        if (near_[place].distance == static_cast<Distance>(level) && !near_[place].cards.empty())
          places.push_back(place);
      give_first(places);
      deal_idle(places);
    }
    std::vector<std::vector<NearCard>> out(given_.size());
    for (std::size_t place = 0; place < given_.size(); ++place)
      for (const std::size_t card : given_[place])
        out[place].push_back({card, near_[place].distance, users_[card]});
    return out;
  }

 private:
  void give(std::size_t place, std::size_t card) {
    given_[place].push_back(card);
    ++users_[card];
  }

  // How many have the card, then how many have a port of it.
  std::pair<int, int> load(std::size_t card) const {
    int ports = 0;
    const auto& address = cards_[card].address;
    for (std::size_t other = 0; address && other < cards_.size(); ++other)
      if (cards_[other].address && cards_[other].address->same_card(*address))
        ports += users_[other];
    return {users_[card], ports};
  }

  void give_first(const std::vector<std::size_t>& places) {
    for (const std::size_t place : places)
      give(place, *std::ranges::min_element(near_[place].cards, {},
                                            [&](std::size_t card) { return load(card); }));
  }

  void deal_idle(const std::vector<std::size_t>& places) {
    // By the places that an idle card is near.
    std::map<std::vector<std::size_t>, std::vector<std::size_t>> groups;
    for (std::size_t card = 0; card < cards_.size(); ++card) {
      if (users_[card] > 0) continue;
      std::vector<std::size_t> takers;
      for (const std::size_t place : places)
        if (std::ranges::binary_search(near_[place].cards, card)) takers.push_back(place);
      if (!takers.empty()) groups[std::move(takers)].push_back(card);
    }
    for (const auto& [takers, idle] : groups) {
      const std::size_t dealt = idle.size() / takers.size() * takers.size();
      for (std::size_t i = 0; i < dealt; ++i) give(takers[i % takers.size()], idle[i]);
      for (std::size_t i = dealt; i < idle.size(); ++i)
        for (const std::size_t place : takers) give(place, idle[i]);
    }
  }

  std::span<const Card> cards_;
  std::vector<Near> near_;  // by place
  std::vector<int> users_;  // by card
  std::vector<std::vector<std::size_t>> given_;
};

void assign(const std::vector<Place>& places, std::span<const Card> cards,
            std::vector<CardUser>& users) {
  auto assigned = assign_cards(places, cards);
  for (std::size_t i = 0; i < users.size(); ++i) users[i].cards = std::move(assigned[i]);
}

}  // namespace

std::vector<std::vector<NearCard>> assign_cards(std::span<const Place> places,
                                                std::span<const Card> cards) {
  return Assignment(places, cards).run();
}

std::string CardUser::name() const {
  if (gpu) return str("GPU ", gpu->text());
  return node == unknown_node ? "this host" : str("NUMA node ", node);
}

const CardUser& CardMap::user_of(const std::optional<PciAddress>& gpu, int processor) const {
  if (gpu) {
    const auto found = std::ranges::find(gpus, gpu, &CardUser::gpu);
    if (found != gpus.end()) return *found;
  }
  const auto found =
      std::ranges::find(nodes, machine.node_of_processor(processor), &CardUser::node);
  return found == nodes.end() ? nodes.front() : *found;
}

std::size_t CardMap::common_cards(const CardUser& user) const {
  const auto& all = user.gpu ? gpus : nodes;
  const auto count = [](const CardUser& one) { return one.cards.size(); };
  return std::ranges::min_element(all, {}, count)->cards.size();
}

CardMap map_cards(Machine machine) {
  CardMap out;
  std::vector<Place> places;
  for (const Gpu& gpu : machine.gpus) {
    out.gpus.push_back({.gpu = gpu.address, .node = gpu.place.node});
    places.push_back(gpu.place);
  }
  assign(places, machine.cards, out.gpus);
  places.clear();
  for (const NumaNode& node : machine.nodes) {
    out.nodes.push_back({.node = node.number});
    places.push_back({.node = node.number});
  }
  if (places.empty()) {
    out.nodes.emplace_back();
    places.emplace_back();
  }
  assign(places, machine.cards, out.nodes);
  out.machine = std::move(machine);
  return out;
}

std::string describe(const Card& card) {
  std::string also;
  const auto add = [&](const std::string& what) {
    if (what != card.name()) also += str(also.empty() ? "" : ", ", what);
  };
  for (const std::string& one : card.rdma_devices) add(one);
  for (const std::string& one : card.interfaces) add(one);
  if (card.address) add(card.address->text());
  return also.empty() ? card.name() : str(card.name(), " (", also, ")");
}

std::string describe(const CardMap& map, const CardUser& user) {
  const Machine& machine = map.machine;
  if (user.cards.empty()) {
    const std::string why = !machine.cards.empty() ? "none is up"
                            : machine.note.empty() ? "the host shows none"
                                                   : machine.note;
    return str(user.name(), " has no network card: ", why);
  }
  std::string out = str(user.name(), " uses ");
  for (const NearCard& near : user.cards) {
    if (&near != user.cards.data()) out += ", ";
    out += describe(machine.cards[near.card]);
    if (near.users > 1)
      out += str(" with ", near.users - 1, user.gpu ? " other GPU" : " other NUMA node",
                 near.users > 2 ? "s" : "");
  }
  const Distance distance = user.cards.front().distance;
  return str(out, ": ", name(distance), ", ", meaning(distance));
}

}  // namespace unisono::topo
