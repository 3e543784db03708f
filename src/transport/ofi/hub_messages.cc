// What ends tell each other, and the writes between them.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/rank.h"
#include "base/try.h"
#include "transport/clock.h"
#include "transport/fault.h"
#include "transport/ofi/hub.h"
#include "transport/request.h"

namespace unisono::transport::ofi {

void Hub::send(End& end, const Message& message, std::uint64_t put) {
  end.messages.push_back({encode(message, end.proof_key), put});
}

void Hub::tell(End& end, MessageType type, Note note, std::uint64_t put) {
  if (!end.is_joined()) return;
  note.number = end.peer_facts->number;
  note.ticket = end.peer_facts->ticket;
  note.arrived = end.told_arrived = end.inbox.in_order();
  send(end, {.type = type, .meeting = {}, .facts = {}, .note = note}, put);
}

void Hub::push_messages(End& end) {
  if (end.owes_gone && end.outbox.outstanding() == 0) {
    end.owes_gone = false;
    tell(end, MessageType::gone, {.sequence = end.outbox.sequence()});
  }
  while (!end.messages.empty()) {
    Operation* operation = take(Operation::Kind::send, ends_.at(end.number));
    const std::vector<std::byte>& bytes = end.messages.front().bytes;
    operation->put = end.messages.front().put;
    std::memcpy(operation->bytes.data(), bytes.data(), bytes.size());
    auto posted = endpoint_->send(std::span(operation->bytes).first(bytes.size()),
                                  operation->descriptor, end.to, operation);
    if (posted.ok() && *posted == Posted::yes) {
      ++end.messages_under_way;
      end.messages.pop_front();
      continue;
    }
    give_back(*operation);
    if (!posted.ok()) {
      Error error = *posted.take_error();
      error.message =
          str("rank ", end.self, " cannot talk to rank ", end.peer, ": ", error.message);
      lose(end, std::move(error));
    }
    return;
  }
}

// Whether a write is told of by one of its own behind it.
bool Hub::travels_apart(const End& end, std::size_t bytes) const {
  return bytes > 0 && (end.has_rings || endpoint_->tells_apart(bytes));
}

// Whether what is owed, if anything is, has left.
bool Hub::push_owed(End& end) {
  if (!end.owed) return true;
  // An answer whose source cannot be read must not count.
  if (end.outbox.outstanding_of_answers(0) > 0) return false;
  Operation* operation = take(Operation::Kind::announcement, ends_.at(end.number));
  operation->put = end.owed->put;
  if (post(end, *end.owed, *operation) != Posted::yes) return false;
  end.owed.reset();
  return true;
}

// A source that is too long to be copied is written in place, and the provider may have to know it.
Status Hub::lend_source(End& end, Outbox::Next& next) {
  if (!endpoint_->needs_descriptors() || next.write.bytes <= most_message_bytes) return {};
  const Outbox::Source source = end.outbox.source();
  if (!source.lent.registration) {
    UNISONO_ASSIGN(source.lent, endpoint_->lend(source.bytes.data(), source.bytes.size()));
  }
  next.write.descriptor = source.lent.descriptor();
  return {};
}

// Posts a write of a put's bytes.
Posted Hub::post(End& end, Write write, Operation& operation) {
  if (endpoint_->needs_descriptors() && write.bytes <= most_message_bytes) {
    std::memcpy(operation.bytes.data(), write.source, write.bytes);
    write.source = operation.bytes.data();
    write.descriptor = operation.descriptor;
  }
  return submit(end, write, operation);
}

// A write of no bytes that is complete when it has arrived never completes over shared memory in
// libfabric 1.17, and holds up all that comes after it. Verbs asks for memory that may be written
// even where it reads nothing.
Posted Hub::post(End& end, const Announcement& announcement, Operation& operation) {
  const Facts& peer = *end.peer_facts;
  const std::size_t region_bytes = end.geometry.region_bytes;
  Write write{.source = operation.bytes.data(),
              .descriptor = operation.descriptor,
              .to = end.to,
              .address = peer.memory_address + Ring::offset(region_bytes, announcement.sequence),
              .key = peer.memory_key};
  if (end.has_rings) {
    const std::uint64_t word = Ring::word(announcement.sequence, announcement.immediate);
    std::memcpy(operation.bytes.data(), &word, sizeof word);
    write.bytes = sizeof word;
  } else {
    write.bytes = endpoint_->is_ordered() ? 0 : 1;
    write.immediate = announcement.immediate;
  }
  return submit(end, write, operation);
}

Posted Hub::submit(End& end, const Write& write, Operation& operation) {
  operation.number = ++last_post_;
  auto posted = endpoint_->write(write, &operation);
  if (posted.ok() && *posted == Posted::yes) return Posted::yes;
  give_back(operation);
  if (!posted.ok()) {
    Error error = *posted.take_error();
    error.message = str("rank ", end.self, " cannot write to rank ", end.peer, ": ", error.message);
    lose(end, std::move(error));
  }
  return Posted::later;
}

void Hub::push_writes(End& end) {
  if (!push_owed(end)) return;
  Outbox::Next next;
  while (end.outbox.next(*end.peer_facts, end.to, endpoint_->most_write_bytes(), next)) {
    if (next.has_value) {
      end.outbox.posted(next, false);
      tell(end, MessageType::value, next.value, next.put);
      push_messages(end);
      continue;
    }
    if (auto status = lend_source(end, next); !status.ok()) {
      refuse(end, *status.take_error());
      return;
    }
    Operation* operation = take(Operation::Kind::write, ends_.at(end.number));
    operation->put = next.put;
    operation->count = next.write.bytes;
    const bool is_apart = travels_apart(end, next.write.bytes);
    if (!is_apart) next.write.immediate = next.announcement.immediate;
    const Posted posted = next.write.bytes == 0 ? post(end, next.announcement, *operation)
                                                : post(end, next.write, *operation);
    if (posted != Posted::yes) return;
    end.outbox.posted(next, is_apart);
    if (is_apart) end.owed = next.announcement;
    if (!push_owed(end)) return;
  }
}

// What a word in the ring behind an end's region tells, if one has come.
void Hub::read_ring(End& end) {
  const auto look = [&] {
    return Ring::look(end.region_memory.data(), end.geometry.region_bytes, end.inbox.in_order());
  };
  for (std::uint64_t i = 0; i < Inbox::window; ++i) {
    const auto immediate = look();
    if (!immediate || !arrive(end, *immediate)) return;
  }
}

// What arrives counts also at an end that has failed: see is_due(). Whether it could be counted.
bool Hub::arrive(End& end, std::uint32_t immediate) {
  auto status = end.inbox.arrive(Immediate::unpack(immediate));
  const bool is_counted = status.ok();
  if (!is_counted && !end.error) refuse(end, *status.take_error());
  if (end.owes_arrived()) tell(end, MessageType::arrived, {});
  end.gets.arrived(end.inbox.in_place());
  return is_counted;
}

// What cannot be read, or has no end here, is dropped: anybody may send to this endpoint.
void Hub::on_message(std::span<const std::byte> bytes) {
  const std::size_t whole = bytes.size();
  if (whole == 0) return;
  const auto message = decode(bytes);
  if (!message) return;
  switch (message->type) {
    case MessageType::ask:
    case MessageType::answer:
    case MessageType::join:
      on_meeting(*message, bytes);
      return;
    default:
      break;
  }
  const auto end = find(message->note.number);
  if (end && end->ticket == message->note.ticket) on_note(*end, *message);
}

void Hub::on_meeting(const Message& message, std::span<const std::byte> bytes) {
  const Meeting& said = message.meeting;
  const auto is_meant = [&](const auto& entry) {
    const End& end = *entry.second;
    const bool is_asked =
        message.type == MessageType::ask ? !end.is_closed : said.to_nonce == end.nonce;
    return is_asked && !end.error && end.key == said.key &&
           static_cast<std::uint32_t>(end.self) == said.to &&
           static_cast<std::uint32_t>(end.peer) == said.from;
  };
  const auto found = std::ranges::find_if(ends_, is_meant);
  if (found == ends_.end()) return;
  End& end = *found->second;
  if (message.type == MessageType::ask) {
    send(end, {.type = MessageType::answer,
               .meeting = end.meeting(said.from_nonce),
               .facts = {},
               .note = {}});
  } else if (is_proved(bytes, end.proof_key)) {
    if (!end.has_told_memory) {
      end.has_told_memory = true;
      send(end, {.type = MessageType::join,
                 .meeting = end.meeting(said.from_nonce),
                 .facts = {.geometry = end.geometry,
                           .number = end.number,
                           .ticket = end.ticket,
                           .memory_key = end.shared.key,
                           .memory_address = end.shared.address,
                           .host = host_,
                           .process = sys::this_process(),
                           .reads_data = endpoint_->signalling() == Signalling::data},
                 .note = {}});
    }
    if (message.type == MessageType::join) join(end, message);
  }
  push(end);
}

void Hub::join(End& end, const Message& message) {
  if (end.is_joined()) return;
  const Facts& facts = message.facts;
  if (!(facts.geometry == end.geometry)) {
    push_messages(end);
    fail(end, geometry_mismatch(end.peer, facts.geometry, end.geometry));
    return;
  }
  if (facts.number > Immediate::most_number) {
    fail(end, peer_error(end.peer, "rank ", end.peer, " numbers its connection ", facts.number,
                         "; it may be at most ", Immediate::most_number));
    return;
  }
  const bool is_same_process = facts.process == sys::this_process();
  if (is_same_process && endpoint_->provider() == shared_memory_provider) {
    fail(end, environment_error(
                  "libfabric's provider shm joins processes; ranks ", end.self, " and ", end.peer,
                  " are threads of one. Choose another provider (FI_PROVIDER), or none"));
    return;
  }
  end.peer_facts = facts;
  end.has_rings = !facts.reads_data || endpoint_->signalling() == Signalling::ring;
  if (end.has_rings && !endpoint_->is_ordered()) {
    refuse(end, environment_error("rank ", end.peer, " reads no completion data of libfabric's ",
                                  endpoint_->provider(), ", and rank ", end.self,
                                  " has no order of writes; choose one provider and version of "
                                  "libfabric on all ranks (FI_PROVIDER)"));
    return;
  }
  if (facts.host == host_ && !is_same_process) {
    end.peer_watch = sys::ProcessWatch(facts.process);
    end.is_watched = true;
  }
  if (end.fault != 0) tell(end, MessageType::fault, {.value = end.fault});
}

// An end that is over allows nothing; its peer has been told why, or has itself gone.
void Hub::on_offer(End& end, const Note& offer) {
  if (end.is_over() || end.is_leaving) return;
  auto answer = end.landing.allow(offer, *endpoint_);
  if (!answer.ok()) {
    refuse(end, *answer.take_error());
    return;
  }
  tell(end, MessageType::allow, *answer);
  push(end);
}

void Hub::on_get(End& end, const Note& get) {
  if (end.is_over() || end.is_leaving) return;
  auto source = end.landing.source(get);
  if (source.ok() && get.bytes == 0)
    source =
        peer_error(end.peer, "rank ", end.peer, " asked to get 0 bytes; it must be at least 1");
  if (source.ok() && end.outbox.unposted_answers(0) == Gets::most)
    source =
        peer_error(end.peer, "rank ", end.peer, " has more than ", Gets::most, " gets under way");
  if (!source.ok()) {
    refuse(end, *source.take_error());
    return;
  }
  tell(end, MessageType::got, end.outbox.answer(get, *source, endpoint_->most_write_bytes()));
  push(end);
}

void Hub::on_note(End& end, const Message& message) {
  const Note& note = message.note;
  if (!end.outbox.arrived(note.arrived)) {
    if (end.error) return;
    refuse(end, peer_error(end.peer, "rank ", end.peer, " says that ", note.arrived,
                           " writes have arrived there; rank ", end.self, " has sent ",
                           end.outbox.sequence()));
    return;
  }
  // What tells when no byte of the peer comes any more counts also at an end that has failed.
  switch (message.type) {
    case MessageType::value:
      if (auto status = end.inbox.arrive(note); !status.ok()) fail(end, *status.take_error());
      if (end.owes_arrived()) tell(end, MessageType::arrived, {});
      return;
    case MessageType::stop:
      end.outbox.drop();
      tell(end, MessageType::stopped, {.sequence = end.outbox.sequence()});
      return;
    case MessageType::bye:
    case MessageType::gone:
      end.may_be_forgotten = true;
      end.owes_gone |= message.type == MessageType::bye;
      [[fallthrough]];
    case MessageType::stopped:
    case MessageType::fault:
      end.peer_total = note.sequence;
      break;
    default:
      break;
  }
  if (end.error) return;
  switch (message.type) {
    case MessageType::offer:
      on_offer(end, note);
      return;
    case MessageType::allow:
      end.outbox.allow(note);
      push(end);
      return;
    case MessageType::get:
      on_get(end, note);
      return;
    case MessageType::got:
      if (end.fault != 0 || end.is_leaving) return;
      if (auto status = end.gets.answered(note); !status.ok()) refuse(end, *status.take_error());
      end.gets.arrived(end.inbox.in_place());
      return;
    case MessageType::fault: {
      const auto fault = unpack_fault(note.value, end.ranks);
      if (!fault) fail(end, impossible_fault(end.peer, note.value, end.ranks));
      if (fault && !end.told_fault) {
        end.told_fault = *fault;
        end.told_ns = now_ns();
      }
      end.outbox.drop();
      return;
    }
    case MessageType::bye:
      end.has_left = true;
      end.outbox.drop();
      push(end);
      return;
    default:
      return;
  }
}

}  // namespace unisono::transport::ofi
