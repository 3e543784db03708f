#include "comm/job/terms.h"

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

Result<Terms> read_terms(std::span<const std::byte> bytes, int rank) {
  WireReader reader(bytes);
  Terms out;
  out.fifo_options.slots = static_cast<int>(reader.number<std::uint64_t>());
  out.fifo_options.simple_slot_bytes = reader.number<std::uint64_t>();
  out.fifo_options.ll_slot_bytes = reader.number<std::uint64_t>();
  out.fifo_options.ll128_slot_bytes = reader.number<std::uint64_t>();
  out.checks_calls = reader.number<std::uint8_t>() != 0;
  out.has_device = reader.number<std::uint8_t>() != 0;
  out.has_signals = reader.number<std::uint8_t>() != 0;
  out.selection_file = reader.number<std::uint64_t>();
  out.forced_plans = reader.number<std::uint64_t>();
  out.is_flat = reader.number<std::uint8_t>() != 0;
  out.calls.policy = reader.number<std::uint8_t>() == static_cast<std::uint8_t>(Policy::zero_sm)
                         ? Policy::zero_sm
                         : Policy::fastest;
  out.calls.max_sms = static_cast<int>(reader.number<std::uint32_t>());
  out.calls.compute_overlap = reader.number<std::uint8_t>() != 0;
  if (!reader.done())
    return peer_error(rank, "rank ", rank, " sent terms of ", bytes.size(),
                      " bytes that cannot be read; is it another version of unisono?");
  return out;
}

// Geometry is part of the protocol: ranks must agree on it.
Status agree(const Terms& a, const Terms& b, int rank, int other) {
  const auto same = [&](Setting setting, std::uint64_t here, std::uint64_t there) -> Status {
    if (here == there) return {};
    return misuse(setting_rows()[static_cast<std::size_t>(setting)].variable, " is ", here,
                  " on rank ", rank, " and ", there, " on rank ", other,
                  "; it must be the same on all ranks");
  };
  if (a.has_device != b.has_device)
    return misuse("rank ", rank, " was given ", a.has_device ? "a" : "no", " CUDA device and rank ",
                  other, b.has_device ? " was given one" : " was not",
                  "; name a device on all ranks or on none");
  if (a.has_signals != b.has_signals)
    return misuse("rank ", rank, " asks for ", a.has_signals ? "" : "no ", "signals and rank ",
                  other, b.has_signals ? " does" : " does not",
                  "; ask for signals on all ranks or on none");
  // Ranks that run different plans would wait for each other without end.
  if (a.selection_file != b.selection_file)
    return misuse("the file of UNISONO_SELECTION_FILE is not the same on ranks ", rank, " and ",
                  other, "; give all ranks one file");
  if (a.forced_plans != b.forced_plans)
    return misuse("UNISONO_ALGORITHM, UNISONO_PROTOCOL or UNISONO_CHANNELS differs between ranks ",
                  rank, " and ", other, "; they must be the same on all ranks");
  if (a.calls.policy != b.calls.policy)
    return misuse("the policy is ", name(*a.calls.policy), " on rank ", rank, " and ",
                  name(*b.calls.policy), " on rank ", other, "; it must be the same on all ranks");
  if (a.calls.max_sms != b.calls.max_sms)
    return misuse("max_sms is ", a.calls.max_sms, " on rank ", rank, " and ", b.calls.max_sms,
                  " on rank ", other, "; it must be the same on all ranks");
  UNISONO_TRY(same(Setting::flat, a.is_flat, b.is_flat));
  UNISONO_TRY(same(Setting::gpu_compute_overlap, a.calls.compute_overlap, b.calls.compute_overlap));
  const auto& fifo = a.fifo_options;
  const auto& its_fifo = b.fifo_options;
  UNISONO_TRY(same(Setting::simple_slots, static_cast<std::uint64_t>(fifo.slots),
                   static_cast<std::uint64_t>(its_fifo.slots)));
  UNISONO_TRY(same(Setting::simple_slot_bytes, fifo.simple_slot_bytes, its_fifo.simple_slot_bytes));
  UNISONO_TRY(same(Setting::ll_slot_bytes, fifo.ll_slot_bytes, its_fifo.ll_slot_bytes));
  UNISONO_TRY(same(Setting::ll128_slot_bytes, fifo.ll128_slot_bytes, its_fifo.ll128_slot_bytes));
  return same(Setting::check_calls, a.checks_calls, b.checks_calls);
}

}  // namespace

std::vector<std::byte> write_terms(const Terms& terms) {
  WireWriter writer;
  const transport::FifoOptions& fifo = terms.fifo_options;
  writer.number(static_cast<std::uint64_t>(fifo.slots));
  writer.number(static_cast<std::uint64_t>(fifo.simple_slot_bytes));
  writer.number(static_cast<std::uint64_t>(fifo.ll_slot_bytes));
  writer.number(static_cast<std::uint64_t>(fifo.ll128_slot_bytes));
  writer.number(static_cast<std::uint8_t>(terms.checks_calls));
  writer.number(static_cast<std::uint8_t>(terms.has_device));
  writer.number(static_cast<std::uint8_t>(terms.has_signals));
  writer.number(terms.selection_file);
  writer.number(terms.forced_plans);
  writer.number(static_cast<std::uint8_t>(terms.is_flat));
  writer.number(static_cast<std::uint8_t>(terms.calls.policy.value_or(Policy::fastest)));
  writer.number(static_cast<std::uint32_t>(terms.calls.max_sms));
  writer.number(static_cast<std::uint8_t>(terms.calls.compute_overlap));
  return writer.take();
}

Error explain_terms(int rank, std::span<const std::byte> common, int other,
                    std::span<const std::byte> its_common) {
  const Result<Terms> a = read_terms(common, rank);
  if (!a.ok()) return a.error();
  const Result<Terms> b = read_terms(its_common, other);
  if (!b.ok()) return b.error();
  const Status same = agree(*a, *b, rank, other);
  if (!same.ok()) return same.error();
  return bug("the terms of ranks ", rank, " and ", other, " differ, but not in what they say");
}

}  // namespace unisono::comm
