#include "transport/nvlink/registrations.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "transport/clock.h"

namespace unisono::transport::nvlink {
namespace {

using sys::cuda::Allocation;
using sys::cuda::DeviceAddress;
using sys::cuda::ExportedAllocation;
using sys::cuda::Shareable;

// Memory beyond goes through slots.
constexpr std::uint32_t most_pieces = 4096;
constexpr std::size_t most_wanted = 64;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 48;  // of a region
// The driver aligns allocations so at least, wherever they are mapped.
constexpr std::size_t allocation_alignment = 256;
// Between two looks at whether allocations are still there.
constexpr std::int64_t look_interval_ns = 50'000'000;

}  // namespace

struct Registrations::Region {
  std::uint64_t number = 0;
  DeviceAddress base = 0;
  std::size_t bytes = 0;
  std::vector<Allocation> pieces;
  std::vector<ExportedAllocation> exports;  // until all have answered
  std::vector<bool> has_answered;           // by rank
  std::vector<DeviceAddress> views;         // by rank; 0: none

  bool holds(DeviceAddress data, std::size_t size) const {
    return data >= base && size <= bytes && data - base <= bytes - size;
  }
  // Whether a process can have mapped it there. 0: it has not.
  bool can_lie_at(DeviceAddress address) const {
    return address == 0 ||
           ((address - base) % allocation_alignment == 0 && bytes <= UINT64_MAX - address);
  }
  bool all_have_answered() const {
    return std::ranges::find(has_answered, false) == has_answered.end();
  }
};

struct Registrations::Import {
  std::uint32_t pieces_wanted = 0;
  std::vector<Record> pieces;
  DeviceAddress owner_base = 0;
  std::size_t bytes = 0;
  DeviceAddress address = 0;  // here; 0: not mapped
  sys::cuda::ImportedMemory memory;
  sys::cuda::MappedPieces mapping;
};

Registrations::Registrations(std::shared_ptr<const sys::cuda::Device> device,
                             std::vector<std::unique_ptr<Mail>> peers)
    : device_(std::move(device)), mails_(std::move(peers)) {}

Registrations::~Registrations() = default;

void Registrations::find(DeviceAddress data, std::size_t bytes, std::span<DeviceAddress> by_rank) {
  if (bytes == 0) return;
  if (const Region* region = region_of(data, bytes)) {
    for (std::size_t rank = 0; rank < std::min(by_rank.size(), mails_.size()); ++rank)
      if (region->views[rank] != 0) by_rank[rank] = region->views[rank] + (data - region->base);
    return;
  }
  if (wanted_.size() < most_wanted) wanted_.push_back({data, bytes});
}

bool Registrations::add(DeviceAddress data, std::size_t bytes) {
  return region_of(data, bytes) != nullptr || make_region(data, bytes) != nullptr;
}

// The newest first: older ones may lie at addresses that were used again.
Registrations::Region* Registrations::region_of(DeviceAddress data, std::size_t bytes) {
  for (std::size_t i = regions_.size(); i-- > 0;)
    if (regions_[i]->holds(data, bytes) && is_there(*regions_[i], data, bytes))
      return regions_[i].get();
  return nullptr;
}

bool Registrations::is_there(const Region& region, DeviceAddress data, std::size_t bytes) const {
  return std::ranges::all_of(region.pieces, [&](const Allocation& piece) {
    const bool is_touched = piece.base < data + bytes && data < piece.base + piece.bytes;
    return !is_touched || sys::cuda::is_there(*device_, piece);
  });
}

Registrations::Region* Registrations::make_region(DeviceAddress data, std::size_t bytes) {
  if (regions_.size() >= most_regions) return nullptr;
  auto region = std::make_unique<Region>();
  for (DeviceAddress at = data; at < data + bytes;) {
    const auto piece = sys::cuda::allocation_at(*device_, at);
    if (!piece || region->pieces.size() >= most_pieces) return nullptr;
    if (refused_.contains(piece->identity)) return nullptr;
    region->pieces.push_back(*piece);
    region->exports.push_back(ExportedAllocation::make(*device_, *piece));
    at = piece->base + piece->bytes;
  }
  const auto kind_of = [](const ExportedAllocation& exported) { return exported.shareable().kind; };
  const bool is_one = region->pieces.size() == 1;
  const bool can_be_shared = std::ranges::all_of(region->exports, [&](const auto& exported) {
    return kind_of(exported) == Shareable::Kind::descriptor ||
           (is_one && kind_of(exported) == Shareable::Kind::handle);
  });
  if (!can_be_shared) {
    if (refused_.size() >= most_regions) refused_.clear();
    for (const Allocation& piece : region->pieces) refused_.insert(piece.identity);
    if (!std::exchange(has_said_why_not_, true))
      log(LogLevel::info, "device memory of ", bytes,
          " bytes"
          " cannot be shared with other processes, so its messages are staged through slots; "
          "allocate it by cuMemAlloc, or by cuMemCreate with a file descriptor handle");
    return nullptr;
  }
  region->number = next_region_++;
  region->base = region->pieces.front().base;
  region->bytes = region->pieces.back().base + region->pieces.back().bytes - region->base;
  region->views.resize(mails_.size());
  for (const auto& mail : mails_) region->has_answered.push_back(mail == nullptr);
  tell(*region);
  awaits_answers_ = true;
  regions_.push_back(std::move(region));
  return regions_.back().get();
}

void Registrations::tell(const Region& region) {
  Record record{.pieces = static_cast<std::uint32_t>(region.pieces.size()),
                .ordinal = device_->ordinal(),
                .region = region.number,
                .process = sys::this_process(),
                .device = device_->uuid()};
  for (; record.piece < record.pieces; ++record.piece) {
    record.address = region.pieces[record.piece].base;
    record.bytes = region.pieces[record.piece].bytes;
    record.shareable = region.exports[record.piece].shareable();
    for (const auto& mail : mails_)
      if (mail) mail->send(record);
  }
}

void Registrations::drop_regions_that_are_gone() {
  for (auto& region : regions_) {
    if (is_there(*region, region->base, region->bytes)) continue;
    for (const auto& mail : mails_)
      if (mail) mail->send({.kind = Record::Kind::gone, .region = region->number});
    region.reset();
  }
  std::erase(regions_, nullptr);
}

bool Registrations::has_news() const {
  return !wanted_.empty() || awaits_answers_ ||
         std::ranges::any_of(mails_, [](const auto& mail) { return mail && mail->has_arrived(); });
}

void Registrations::advance(bool is_idle) {
  for (const Wanted& wanted : wanted_) add(wanted.data, wanted.bytes);
  wanted_.clear();
  if (const std::int64_t now = now_ns(); now - looked_ns_ >= look_interval_ns) {
    looked_ns_ = now;
    drop_regions_that_are_gone();
  }
  for (std::size_t peer = 0; peer < mails_.size(); ++peer) {
    if (!mails_[peer]) continue;
    mails_[peer]->progress();
    bool has_heard = false;
    while (const auto record = mails_[peer]->take()) {
      hear(static_cast<int>(peer), *record);
      has_heard = true;
    }
    if (has_heard) mails_[peer]->progress();
  }
  if (awaits_answers_) awaits_answers_ = !all_have_answered();
  if (is_idle) unused_.clear();
}

void Registrations::hear(int peer, const Record& record) {
  switch (record.kind) {
    case Record::Kind::piece:
      hear_piece(peer, record);
      return;
    case Record::Kind::answer:
      hear_answer(peer, record);
      return;
    case Record::Kind::gone:
      if (auto found = imports_.extract({peer, record.region}))
        unused_.push_back(std::move(found.mapped()));
      return;
  }
  log(LogLevel::warn, "rank ", peer, " sent a record of kind ",
      static_cast<std::uint32_t>(record.kind),
      " about its device memory; there are none of that kind, and it is ignored");
}

// Where the peer has mapped a region is its word, and it alone goes wrong by a false one that is
// possible. What cannot be is not used.
void Registrations::hear_answer(int peer, const Record& record) {
  const auto rank = static_cast<std::size_t>(peer);
  const auto found = std::ranges::find_if(
      regions_, [&](const auto& region) { return region->number == record.region; });
  if (found == regions_.end()) {
    // It may have gone since the peer answered.
    if (record.region >= next_region_)
      log(LogLevel::warn, "rank ", peer, " answered for region ", record.region,
          " of this rank's device memory; there are only ", next_region_ - 1);
    return;
  }
  Region& region = **found;
  const bool fits = !region.has_answered[rank] && region.can_lie_at(record.address);
  if (!fits)
    log(LogLevel::warn, "rank ", peer, " answered ", region.has_answered[rank] ? "again, " : "",
        "that it has mapped the ", region.bytes, " bytes at ", region.base,
        " of this rank's device memory at ", record.address,
        ", which cannot be; its messages to there are staged through slots");
  region.has_answered[rank] = true;
  region.views[rank] = fits ? record.address : 0;
  if (region.all_have_answered()) region.exports.clear();
}

void Registrations::hear_piece(int peer, const Record& record) {
  const auto name = std::pair(peer, record.region);
  auto& import = imports_[name];
  const bool is_first = import == nullptr;
  if (is_first) import = std::make_unique<Import>();
  // Pieces come in order, one after another, and nothing twice.
  const bool fits =
      record.piece == import->pieces.size() && record.pieces <= most_pieces &&
      record.piece < record.pieces && record.bytes > 0 &&
      record.bytes <= most_bytes - import->bytes &&
      (is_first ? imports_.size() <= most_regions * mails_.size()
                : !import->pieces.empty() && record.pieces == import->pieces.front().pieces &&
                      record.address == import->owner_base + import->bytes);
  if (!fits) {
    log(LogLevel::warn, "rank ", peer,
        " sent a description of its device memory that cannot be read; messages to it are staged "
        "through slots");
    imports_.erase(name);
    return;
  }
  if (is_first) import->owner_base = record.address;
  import->bytes += record.bytes;
  import->pieces.push_back(record);
  if (import->pieces.size() < record.pieces) return;
  auto mapped = map(*import);
  if (mapped.ok())
    import->address = *mapped;
  else
    log(LogLevel::info, "device memory of rank ", peer,
        " cannot be mapped, so messages to it are staged through slots: ", mapped.error().message);
  import->pieces.clear();
  mails_[static_cast<std::size_t>(peer)]->send(
      {.kind = Record::Kind::answer, .region = record.region, .address = import->address});
}

Result<DeviceAddress> Registrations::map(Import& import) const {
  const Record& first = import.pieces.front();
  if (!device_->can_access(first.device))
    return environment_error("CUDA device ", device_->ordinal(),
                             " cannot access the memory of device ", first.ordinal,
                             ", which another rank uses");
  const bool is_own_process = first.process == sys::this_process();
  if (first.shareable.kind == Shareable::Kind::handle) {
    if (is_own_process) {
      UNISONO_ASSIGN(const auto owner, sys::cuda::Device::open(first.ordinal));
      UNISONO_TRY(device_->enable_peer(*owner));
      return import.owner_base;
    }
    UNISONO_ASSIGN(import.memory, sys::cuda::ImportedMemory::open(device_, first.shareable.handle));
    if (import.bytes > import.memory.bytes())
      return environment_error("it has ", import.memory.bytes(), " bytes and not the ",
                               import.bytes, " that its owner announced");
    return import.memory.address();
  }
  std::vector<sys::cuda::MappedPieces::Piece> pieces;
  for (const Record& record : import.pieces)
    pieces.push_back({record.bytes, record.shareable.descriptor});
  UNISONO_ASSIGN(import.mapping, sys::cuda::MappedPieces::map(device_, first.process, pieces));
  return import.mapping.address();
}

bool Registrations::all_have_answered() const {
  return std::ranges::all_of(regions_, [&](const auto& region) {
    for (std::size_t rank = 0; rank < mails_.size(); ++rank)
      if (!region->has_answered[rank] && mails_[rank]->failure().ok()) return false;
    return true;
  });
}

std::size_t Registrations::shared_bytes() const {
  std::vector<const Region*> sorted;
  for (const auto& region : regions_) sorted.push_back(region.get());
  std::ranges::sort(sorted, {}, &Region::base);
  std::size_t bytes = 0;
  DeviceAddress end = 0;
  for (const Region* region : sorted) {
    const DeviceAddress region_end = region->base + region->bytes;
    if (region_end > end) bytes += region_end - std::max(end, region->base);
    end = std::max(end, region_end);
  }
  return bytes;
}

std::size_t Registrations::mapped_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [name, import] : imports_) bytes += import->address != 0 ? import->bytes : 0;
  return bytes;
}

std::size_t Registrations::mail_bytes(int peer) const {
  const auto& mail = mails_[static_cast<std::size_t>(peer)];
  return mail ? sizeof(Mail) + mail->memory_bytes() : 0;
}

}  // namespace unisono::transport::nvlink
