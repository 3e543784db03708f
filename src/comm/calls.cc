#include "comm/calls.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/try.h"
#include "plan/plan.h"

namespace unisono::comm {
namespace {

struct Span {
  const std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
};

std::string where(const Call& call, int rank) {
  return str(" in ", name(call.collective), " on rank ", rank);
}

Status check_buffer(std::string_view which, const void* data, std::uint64_t bytes, const Call& call,
                    int rank) {
  if (data == nullptr && bytes > 0)
    return misuse("the ", which, " is a null pointer", where(call, rank), "; it must hold ", bytes,
                  " bytes");
  return {};
}

bool overlap(const Span& a, const Span& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

Status check_uneven(const Call& call, int rank, int ranks) {
  const auto check = [&](std::string_view which, std::span<const std::int64_t> counts,
                         std::span<const std::int64_t> displacements, const void* data) -> Status {
    if (counts.size() != static_cast<std::size_t>(ranks) ||
        displacements.size() != static_cast<std::size_t>(ranks))
      return misuse(which, "_counts and ", which, "_displacements have ", counts.size(), " and ",
                    displacements.size(), " entries", where(call, rank), "; both need ", ranks);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] < 0 || displacements[i] < 0)
        return misuse(which, "_counts[", i, "] is ", counts[i], " and ", which, "_displacements[",
                      i, "] is ", displacements[i], where(call, rank), "; both must be 0 or more");
      UNISONO_TRY(check_buffer(which == "send" ? "input" : "output", data,
                               static_cast<std::uint64_t>(counts[i]) * size_bytes(call.type), call,
                               rank));
    }
    return {};
  };
  UNISONO_TRY(check("send", call.send_counts, call.send_displacements, call.input));
  UNISONO_TRY(check("recv", call.recv_counts, call.recv_displacements, call.output));
  if (call.input == call.output && call.input != nullptr)
    return misuse("input and output are the same memory", where(call, rank),
                  "; all_to_all_v cannot be in place");
  const auto own = static_cast<std::size_t>(rank);
  if (call.send_counts[own] != call.recv_counts[own])
    return misuse("rank ", rank, " sends itself ", call.send_counts[own], " elements and expects ",
                  call.recv_counts[own], " of itself in all_to_all_v");
  return {};
}

}  // namespace

plan::Header shape_of(const Call& call, int ranks) {
  plan::Header header;
  header.collective = call.collective;
  header.ranks = ranks;
  header.root = has_root(call.collective) ? call.root : 0;
  return header;
}

bool buffers_fit(const Call& call, std::uint64_t input_bytes, std::uint64_t output_bytes,
                 bool in_place) {
  const Span input{static_cast<const std::byte*>(call.input), input_bytes};
  const Span output{static_cast<const std::byte*>(call.output), output_bytes};
  return (input.begin != nullptr || input_bytes == 0) &&
         (output.begin != nullptr || output_bytes == 0) && (in_place || !overlap(input, output));
}

bool is_in_place(const Call& call, int rank) {
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

std::uint64_t block_bytes(const Call& call) {
  if (call.collective == Collective::all_to_all_v) return 0;
  return static_cast<std::uint64_t>(call.count) * size_bytes(call.type);
}

Status check_call(const Call& call, const plan::Header& shape, int rank) {
  const int ranks = shape.ranks;
  if (has_root(call.collective) && (call.root < 0 || call.root >= ranks))
    return misuse("root is ", call.root, where(call, rank), "; it must be 0 to ", ranks - 1);
  if (call.collective == Collective::barrier) return {};
  if (call.collective == Collective::all_to_all_v) return check_uneven(call, rank, ranks);
  if (call.collective == Collective::point_to_point)
    return misuse("collective '", name(call.collective), "' cannot be called by its name");
  if (call.collective == Collective::custom &&
      (call.operation == ReduceOperation::average ||
       call.operation == ReduceOperation::pre_multiplied_sum))
    return misuse("operation is ", name(call.operation), " in program ", shape.name, " on rank ",
                  rank, "; a custom program takes sum, product, min or max");
  if (call.count < 0)
    return misuse("count is ", call.count, where(call, rank), "; it must be 0 or more");
  const int inputs = plan::input_blocks_of(shape, rank);
  const int outputs = plan::output_blocks_of(shape, rank);
  constexpr std::int64_t most = std::int64_t{1} << 48;
  const std::int64_t most_blocks = std::max({ranks, inputs, outputs});
  if (call.count > most / most_blocks)
    return misuse("count is ", call.count, where(call, rank), "; with ", ranks,
                  " ranks it must be at most ", most / most_blocks);
  const std::uint64_t block = block_bytes(call);
  const Span input{static_cast<const std::byte*>(call.input),
                   block * static_cast<std::uint64_t>(inputs)};
  const Span output{static_cast<const std::byte*>(call.output),
                    block * static_cast<std::uint64_t>(outputs)};
  UNISONO_TRY(check_buffer("input", input.begin, input.bytes, call, rank));
  UNISONO_TRY(check_buffer("output", output.begin, output.bytes, call, rank));
  if (!is_in_place(call, rank) && overlap(input, output))
    return misuse("input (", input.bytes, " bytes) and output (", output.bytes, " bytes) overlap",
                  where(call, rank), "; they must be apart, or exactly in place");
  return {};
}

Status check_message(const Message& message, int rank, int ranks, std::size_t messages) {
  const char* what = message.is_send ? "send" : "receive";
  if (message.tag < 0 || message.tag > max_tag)
    return misuse("tag is ", message.tag, " in a ", what, " on rank ", rank, "; it must be 0 to ",
                  max_tag);
  if (message.peer == any_source && !message.is_send) {
    if (messages > 1)
      return misuse("a receive from any source is in a group of ", messages, " on rank ", rank,
                    "; it must be alone");
    if (message.count == 0)
      return misuse("a receive of 0 elements from any source on rank ", rank,
                    "; nothing would tell who sent them");
    if (ranks == 1)
      return misuse("a receive from any source on rank ", rank, ", but there is no other rank");
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

engine::Arguments arguments_of(const Call& call) {
  engine::Arguments out;
  out.stream = call.options.stream.value_or(nullptr);
  out.timeout_ns = call.options.timeout.count();
  if (call.collective == Collective::barrier) {
    out.count = 1;
    return out;
  }
  out.input = call.input;
  out.output = call.output;
  out.count = call.count;
  out.type = call.type;
  out.operation = call.operation;
  out.pre_multiplier = {.real = call.multiplier, .integer = call.integer_multiplier};
  if (call.collective == Collective::all_to_all_v) {
    out.count = 0;
    out.input_counts = call.send_counts;
    out.input_displacements = call.send_displacements;
    out.output_counts = call.recv_counts;
    out.output_displacements = call.recv_displacements;
  }
  return out;
}

Fingerprint fingerprint(const Call& call) {
  const bool reduces = is_reduction(call.collective);
  const bool uniform =
      call.collective != Collective::barrier && call.collective != Collective::all_to_all_v;
  const std::size_t options =
      std::hash<std::string>{}(call.options.algorithm) * 31 +
      (call.options.protocol ? static_cast<std::size_t>(*call.options.protocol) + 1 : 0) * 131 +
      static_cast<std::size_t>(call.options.channels) +
      (call.options.policy ? static_cast<std::size_t>(*call.options.policy) + 1 : 0) * 524'287 +
      static_cast<std::size_t>(call.options.max_sms) * 8'191 +
      (call.options.leaves_room ? 65'537 : 0);
  return {.collective = static_cast<std::int32_t>(call.collective),
          .type = uniform ? static_cast<std::int32_t>(call.type) : 0,
          .operation = reduces ? static_cast<std::int32_t>(call.operation) : 0,
          .root = has_root(call.collective) ? call.root : 0,
          .count = uniform ? call.count : 0,
          .options = static_cast<std::int64_t>(options)};
}

std::string describe(const Fingerprint& fingerprint) {
  const auto collective = static_cast<Collective>(fingerprint.collective);
  std::string out = str(name(collective), " of ", fingerprint.count, " ",
                        name(static_cast<DataType>(fingerprint.type)));
  if (is_reduction(collective))
    out += str(", ", name(static_cast<ReduceOperation>(fingerprint.operation)));
  if (has_root(collective)) out += str(", root ", fingerprint.root);
  return out;
}

}  // namespace unisono::comm
