#include "comm/run/calls.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/call_options.h"
#include "base/error.h"
#include "base/try.h"
#include "plan/plan.h"

namespace unisono::comm {
namespace {

// The most elements of a buffer, so that the bytes of any type fit 64 bits.
constexpr std::int64_t most_elements = std::int64_t{1} << 48;

struct Span {
  const std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
};

std::string where(const CallView& call, int rank) {
  return str(" in ", name(call.collective), " on rank ", rank);
}

Status check_buffer(std::string_view which, const void* data, std::uint64_t bytes,
                    const CallView& call, int rank) {
  if (data == nullptr && bytes > 0)
    return misuse("the ", which, " is a null pointer", where(call, rank), "; it must hold ", bytes,
                  " bytes");
  return {};
}

bool overlap(const Span& a, const Span& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

// What arrives must lie apart from all else that arrives and from all that is sent.
Status check_apart(const CallView& call, int rank) {
  struct Part {
    Span span;
    std::size_t of = 0;
  };
  const std::size_t size = size_bytes(call.type);
  const auto part = [&](const void* data, const engine::Blocks& blocks, std::size_t i) {
    return Part{
        {static_cast<const std::byte*>(data) + blocks.displacements[i] * std::ptrdiff_t(size),
         static_cast<std::uint64_t>(blocks.counts[i]) * size},
        i};
  };
  std::vector<Part> received;
  for (std::size_t i = 0; i < call.received().counts.size(); ++i)
    if (call.received().counts[i] > 0) received.push_back(part(call.output, call.received(), i));
  std::ranges::sort(received, std::less(), [](const Part& one) { return one.span.begin; });
  for (std::size_t i = 1; i < received.size(); ++i)
    if (overlap(received[i - 1].span, received[i].span))
      return misuse("the blocks received from rank ", received[i - 1].of, " and from rank ",
                    received[i].of, " overlap", where(call, rank),
                    "; recv_counts and recv_displacements must keep them disjoint");
  for (std::size_t i = 0; i < call.sent().counts.size(); ++i) {
    const Part sent = part(call.input, call.sent(), i);
    // The first part that does not end before this one begins.
    const auto near = std::ranges::partition_point(received, [&](const Part& one) {
      return one.span.begin + one.span.bytes <= sent.span.begin;
    });
    if (near != received.end() && overlap(near->span, sent.span))
      return misuse("the block sent to rank ", i, " and the block received from rank ", near->of,
                    " overlap", where(call, rank), "; all_to_all_v cannot work in place");
  }
  return {};
}

Result<bool> check_uneven(const CallView& call, int rank, int ranks) {
  const auto check = [&](std::string_view which, const engine::Blocks& blocks,
                         const void* data) -> Status {
    const auto& [counts, displacements, calls] = blocks;
    if (counts.size() != static_cast<std::size_t>(ranks) ||
        displacements.size() != static_cast<std::size_t>(ranks))
      return misuse(which, "_counts and ", which, "_displacements have ", counts.size(), " and ",
                    displacements.size(), " entries", where(call, rank), "; both need ", ranks);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] < 0 || displacements[i] < 0)
        return misuse(which, "_counts[", i, "] is ", counts[i], " and ", which, "_displacements[",
                      i, "] is ", displacements[i], where(call, rank), "; both must be 0 or more");
      if (counts[i] > most_elements || displacements[i] > most_elements - counts[i])
        return misuse(which, "_counts[", i, "] is ", counts[i], " and ", which, "_displacements[",
                      i, "] is ", displacements[i], where(call, rank),
                      "; their sum must be at most ", most_elements);
      UNISONO_TRY(check_buffer(which == "send" ? "input" : "output", data,
                               static_cast<std::uint64_t>(counts[i]) * size_bytes(call.type), call,
                               rank));
    }
    return {};
  };
  UNISONO_TRY(check("send", call.sent(), call.input));
  UNISONO_TRY(check("recv", call.received(), call.output));
  if (call.input == call.output && call.input != nullptr)
    return misuse("input and output are the same memory", where(call, rank),
                  "; all_to_all_v cannot work in place");
  const auto own = static_cast<std::size_t>(rank);
  if (call.sent().counts[own] != call.received().counts[own])
    return misuse("rank ", rank, " sends itself ", call.sent().counts[own],
                  " elements but expects to receive ", call.received().counts[own],
                  " from itself in all_to_all_v; both counts must be equal");
  UNISONO_TRY(check_apart(call, rank));
  return false;
}

}  // namespace

plan::Header shape_of(const CallView& call, int ranks) {
  plan::Header header;
  header.collective = call.collective;
  header.ranks = ranks;
  header.root = has_root(call.collective) ? call.root : 0;
  return header;
}

CallView view_of(const Call& call) {
  return {.collective = call.collective,
          .input = call.input,
          .output = call.output,
          .count = call.count,
          .type = call.type,
          .operation = call.operation,
          .root = call.root,
          .options = call.options,
          .multiplier = {.real = call.multiplier, .integer = call.integer_multiplier},
          .whole = &call};
}

bool buffers_fit(const CallView& call, std::uint64_t input_bytes, std::uint64_t output_bytes,
                 bool in_place) {
  const Span input{static_cast<const std::byte*>(call.input), input_bytes};
  const Span output{static_cast<const std::byte*>(call.output), output_bytes};
  return (input.begin != nullptr || input_bytes == 0) &&
         (output.begin != nullptr || output_bytes == 0) && (in_place || !overlap(input, output));
}

Status check_message_on_stream(const Message& message, int rank) {
  if (message.peer == any_source)
    return misuse("rank ", rank,
                  " receives from any source on a stream; name the peer of a receive between "
                  "devices");
  if (message.tag == 0) return {};
  return misuse("tag is ", message.tag, " in a message on a stream on rank ", rank,
                "; it must be 0 between devices");
}

bool is_in_place(const CallView& call, int rank) {
  if (call.input == nullptr || call.output == nullptr || call.count == 0) return false;
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const auto own = static_cast<std::ptrdiff_t>(block_bytes(call)) * rank;
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::custom:
      return input == output;
    case Collective::broadcast:
    case Collective::reduce:
      return rank == call.root && input == output;
    case Collective::all_gather:
      return input == output + own;
    case Collective::gather:
      return rank == call.root && input == output + own;
    case Collective::reduce_scatter:
      return output == input + own;
    case Collective::scatter:
      return rank == call.root && output == input + own;
    default:
      return false;
  }
}

std::uint64_t block_bytes(const CallView& call) {
  if (call.collective == Collective::all_to_all_v) return 0;
  return static_cast<std::uint64_t>(call.count) * size_bytes(call.type);
}

Result<bool> check_call(const CallView& call, const plan::Header& shape, int rank) {
  const int ranks = shape.ranks;
  UNISONO_TRY(check_options(call.options, str(" on rank ", rank)));
  if (has_root(call.collective) && (call.root < 0 || call.root >= ranks))
    return misuse("root is ", call.root, where(call, rank), "; it must be 0 to ", ranks - 1);
  if (call.collective == Collective::barrier) return false;
  if (call.collective == Collective::all_to_all_v) return check_uneven(call, rank, ranks);
  if (call.collective == Collective::point_to_point)
    return misuse("collective '", name(call.collective),
                  "' cannot be called by its name alone; call a registered program");
  if (call.collective == Collective::custom &&
      (call.operation == ReduceOperation::average ||
       call.operation == ReduceOperation::pre_multiplied_sum))
    return misuse("operation is ", name(call.operation), " in program ", shape.name, " on rank ",
                  rank, "; a custom program takes sum, product, min or max");
  if (call.count < 0)
    return misuse("count is ", call.count, where(call, rank), "; it must be 0 or more");
  const int inputs = plan::input_blocks_of(shape, rank);
  const int outputs = plan::output_blocks_of(shape, rank);
  const std::int64_t most_blocks = std::max({ranks, inputs, outputs});
  if (call.count > most_elements / most_blocks)
    return misuse("count is ", call.count, where(call, rank), "; with ", ranks,
                  " ranks it must be at most ", most_elements / most_blocks);
  const std::uint64_t block = block_bytes(call);
  const Span input{static_cast<const std::byte*>(call.input),
                   block * static_cast<std::uint64_t>(inputs)};
  const Span output{static_cast<const std::byte*>(call.output),
                    block * static_cast<std::uint64_t>(outputs)};
  UNISONO_TRY(check_buffer("input", input.begin, input.bytes, call, rank));
  UNISONO_TRY(check_buffer("output", output.begin, output.bytes, call, rank));
  const bool in_place = is_in_place(call, rank);
  if (!in_place && overlap(input, output))
    return misuse("input (", input.bytes, " bytes) and output (", output.bytes, " bytes) overlap",
                  where(call, rank), "; they must be disjoint, or exactly in place");
  return in_place;
}

Status check_message(const Message& message, int rank, int ranks, std::size_t messages) {
  const char* what = message.is_send ? "send" : "receive";
  if (message.tag < 0 || message.tag > max_tag)
    return misuse("tag is ", message.tag, " in a ", what, " on rank ", rank, "; it must be 0 to ",
                  max_tag);
  if (message.peer == any_source && !message.is_send) {
    if (messages > 1)
      return misuse("a receive from any source is in a group of ", messages, " messages on rank ",
                    rank, "; it must be the only one");
    if (message.count == 0)
      return misuse(
          "rank ", rank,
          " receives 0 elements from any source, which no message would match; name the peer");
    if (ranks == 1)
      return misuse("rank ", rank,
                    " receives from any source, but the communicator has no other rank");
  } else if (message.peer < 0 || message.peer >= ranks) {
    return misuse("peer is ", message.peer, " in a ", what, " on rank ", rank, "; it must be 0 to ",
                  ranks - 1, message.is_send ? "" : ", or any_source");
  }
  if (message.count < 0)
    return misuse("count is ", message.count, " in a ", what, " on rank ", rank,
                  "; it must be 0 or more");
  const void* data = message.is_send ? message.send_data : message.recv_data;
  if (data == nullptr && message.count > 0)
    return misuse("the buffer is a null pointer in a ", what, " of ", message.count,
                  " elements on rank ", rank);
  return {};
}

Status check_options_of_messages(const CallOptions& options, int rank) {
  if (options.names_plan())
    return misuse("messages on rank ", rank,
                  " name an algorithm, a protocol or channels, which only collectives have");
  return check_options(options, str(" on rank ", rank));
}

engine::Arguments arguments_of(const CallView& call) {
  engine::Arguments out;
  out.call.what = pack(fingerprint(call));
  out.options = call.options;
  if (call.collective == Collective::barrier) {
    out.count = 1;
    return out;
  }
  out.input = call.input;
  out.output = call.output;
  out.count = call.count;
  out.type = call.type;
  out.operation = call.operation;
  out.pre_multiplier = call.multiplier;
  if (call.collective == Collective::all_to_all_v) {
    out.count = 0;
    out.inputs = call.sent();
    out.outputs = call.received();
  }
  return out;
}

Fingerprint fingerprint(const CallView& call) {
  Fingerprint out{.collective = call.collective};
  if (call.collective == Collective::barrier) return out;
  out.type = call.type;
  // Ranks know only their own counts of all_to_all_v.
  if (call.collective != Collective::all_to_all_v) out.count = call.count;
  if (is_reduction(call.collective) || call.collective == Collective::custom)
    out.operation = call.operation;
  if (has_root(call.collective)) out.root = static_cast<std::uint32_t>(call.root);
  if (call.collective == Collective::custom)
    out.root = static_cast<std::uint32_t>(std::hash<std::string>{}(call.options.algorithm));
  return out;
}

CallCard card_of(const CallView& call, const PreparedCall& prepared, const Status& is_right) {
  CallCard out;
  out.call = pack(fingerprint(call));
  out.options = call.options.agreed_hash();
  if (is_right.ok())
    out.plan = prepared.arguments.call.plan;
  else
    out.refusal.set(is_right.error().message);
  return out;
}

Status compare(std::span<const CallCard> cards, std::uint64_t communicator,
               std::uint64_t sequence) {
  const std::string which = str("call ", sequence, " of communicator ", communicator);
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (!cards[rank].refusal.empty())
      return misuse("rank ", rank, " cannot make ", which, ": ", cards[rank].refusal.text());
  const auto call_of = [](const CallCard& card) {
    return CallId{.what = card.call, .plan = card.plan};
  };
  const CallId first = call_of(cards[0]);
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    const CallId other = call_of(cards[rank]);
    const bool same_options = first.what != other.what || cards[0].options == cards[rank].options;
    if (first == other && same_options) continue;
    return misuse("ranks disagree on ", which, ": rank 0 calls ", describe_call(first, other),
                  "; rank ", rank, " calls ", describe_call(other, first),
                  same_options ? "" : " with other options");
  }
  return {};
}

}  // namespace unisono::comm
