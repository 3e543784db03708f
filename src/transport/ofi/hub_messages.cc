// What ends tell each other, and the writes between them.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/rank.h"
#include "transport/clock.h"
#include "transport/fault.h"
#include "transport/ofi/hub.h"
#include "transport/request.h"

namespace unisono::transport::ofi {

void Hub::send(End& end, const Message& message) {
  end.messages.push_back(encode(message, end.proof_key));
}

void Hub::tell(End& end, MessageType type, Note note) {
  if (!end.is_joined()) return;
  note.number = end.peer_facts->number;
  note.ticket = end.peer_facts->ticket;
  send(end, {.type = type, .meeting = {}, .facts = {}, .note = note});
}

void Hub::push_messages(End& end) {
  if (end.owes_gone && end.outbox.outstanding() == 0) {
    end.owes_gone = false;
    tell(end, MessageType::gone, {});
  }
  while (!end.messages.empty()) {
    Operation* operation = take(Operation::Kind::send, ends_.at(end.number));
    const std::vector<std::byte>& bytes = end.messages.front();
    std::memcpy(operation->bytes.data(), bytes.data(), bytes.size());
    auto posted =
        endpoint_->send(std::span(operation->bytes).first(bytes.size()), end.to, operation);
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

// Whether the immediate that is owed, if one is, has left.
bool Hub::push_owed(End& end) {
  if (!end.owed_immediate) return true;
  // An answer whose source cannot be read must not count.
  if (end.outbox.outstanding_of_answers(0) > 0) return false;
  // It has no source, so that its completion counts as that of a message.
  Operation* operation = take(Operation::Kind::send, ends_.at(end.number));
  if (post(end, *end.owed_immediate, *operation) != Posted::yes) return false;
  ++end.messages_under_way;
  end.owed_immediate.reset();
  return true;
}

// A write of no bytes that is complete when it has arrived never completes over shared memory in
// libfabric 1.17, and holds up all that comes after it.
Posted Hub::post(End& end, Write write, Operation& operation) {
  if (write.bytes == 0 && !endpoint_->is_ordered()) {
    write.bytes = 1;
    write.address = end.peer_facts->memory_address + end.geometry.region_bytes;
  }
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
      end.outbox.posted(next);
      tell(end, MessageType::value, next.value);
      push_messages(end);
      continue;
    }
    Operation* operation = take(Operation::Kind::write, ends_.at(end.number));
    operation->put = next.put;
    if (post(end, next.write, *operation) != Posted::yes) return;
    end.outbox.posted(next);
    if (endpoint_->tells_apart(next.write.bytes)) {
      end.owed_immediate = next.write;
      end.owed_immediate->bytes = 0;
      end.owed_immediate->address = end.peer_facts->memory_address;
      end.owed_immediate->key = end.peer_facts->memory_key;
    }
    if (!push_owed(end)) return;
  }
}

// One that has no end here was on its way when that went.
void Hub::on_immediate(std::uint32_t word) {
  const Immediate immediate = Immediate::unpack(word);
  const auto end = find(immediate.number);
  if (!end) return;
  // What arrives counts also at an end that has failed: see is_due().
  auto status = end->inbox.arrive(immediate);
  if (!status.ok() && !end->error) refuse(*end, *status.take_error());
  end->gets.arrived(end->inbox.in_place());
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
                           .process = sys::this_process()},
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
  // What tells when no byte of the peer comes any more counts also at an end that has failed.
  switch (message.type) {
    case MessageType::value:
      if (auto status = end.inbox.arrive(note); !status.ok()) fail(end, *status.take_error());
      return;
    case MessageType::stop:
      end.outbox.drop();
      tell(end, MessageType::stopped, {.sequence = end.outbox.sequence()});
      return;
    case MessageType::stopped:
    case MessageType::fault:
    case MessageType::bye:
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
      // Its own last writes here came before.
      end.may_be_forgotten = true;
      end.owes_gone = true;
      push(end);
      return;
    case MessageType::gone:
      end.may_be_forgotten = true;
      return;
    default:
      return;
  }
}

}  // namespace unisono::transport::ofi
