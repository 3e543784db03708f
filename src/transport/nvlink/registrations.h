// Users' memory that other ranks reach: which of this rank's memory the others have mapped, and
// where; and what of theirs is mapped here. Made when it is first asked for, found again by its
// allocation, dropped when that is gone, at most most_regions. This is how device memory is
// registered with a transport: see "device memory" in transport/transport.h. Its remote form is an
// address, which kernels can use, where that of host memory is a key (Connection::expose).
//
// A region is one allocation, or the pieces that were mapped one after another under a buffer. Its
// owner tells it to every other rank, which maps it and answers at which address, or that it
// cannot. An allocation is known by the driver's number for it, so that memory which is freed and
// lies at the same addresses again is another one. Whose allocation is gone tells the others, who
// unmap it once nothing runs here.
#pragma once

#include <unisono/result.h>

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "transport/nvlink/mail.h"

namespace unisono::transport::nvlink {

// Threads: one at a time.
class Registrations {
 public:
  using DeviceAddress = sys::cuda::DeviceAddress;
  // What a rank makes known, and what it takes of each other one: memory beyond goes through slots.
  static constexpr std::size_t most_regions = 1024;

  // `peers` by rank; null for the own one.
  Registrations(std::shared_ptr<const sys::cuda::Device> device,
                std::vector<std::unique_ptr<Mail>> peers);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // By rank, where it reaches own memory [data, data + bytes), in its addresses; 0 where it does
  // not. What is not known is made known by the next advance(). Valid as long as the memory is.
  void find(DeviceAddress data, std::size_t bytes, std::span<DeviceAddress> by_rank);
  // Whether advance() has something to tell, to hear, or to wait for.
  bool has_news() const;
  // Makes known what [data, data + bytes) lies in, at once. False: it cannot be shared.
  bool add(DeviceAddress data, std::size_t bytes);
  // Whether every rank that is reached at all has said what it makes of all that it was told.
  bool all_have_answered() const;

  // Tells and hears what is new. Maps and unmaps memory: not on the way of a call. `is_idle`: no
  // kernel or copy of this rank uses mapped memory.
  void advance(bool is_idle);

  // Bytes of own memory that was made known, and of others' that is mapped.
  std::size_t shared_bytes() const;
  std::size_t mapped_bytes() const;
  // Host memory for control words sent to a rank and received from it.
  std::size_t mail_bytes(int peer) const;

 private:
  struct Region;
  struct Import;
  struct Wanted {
    DeviceAddress data;
    std::size_t bytes;
  };

  Region* region_of(DeviceAddress data, std::size_t bytes);
  Region* make_region(DeviceAddress data, std::size_t bytes);
  bool is_there(const Region& region, DeviceAddress data, std::size_t bytes) const;
  void drop_regions_that_are_gone();
  void tell(const Region& region);
  void hear(int peer, const Record& record);
  void hear_piece(int peer, const Record& record);
  void hear_answer(int peer, const Record& record);
  Result<DeviceAddress> map(Import& import) const;

  std::shared_ptr<const sys::cuda::Device> device_;
  std::vector<std::unique_ptr<Mail>> mails_;
  std::vector<std::unique_ptr<Region>> regions_;  // the newest last
  std::vector<Wanted> wanted_;
  std::map<std::pair<int, std::uint64_t>, std::unique_ptr<Import>> imports_;  // peer, region
  std::vector<std::unique_ptr<Import>> unused_;  // to be unmapped when idle
  std::set<std::uint64_t> refused_;              // allocations that cannot be shared
  std::uint64_t next_region_ = 1;
  std::int64_t looked_ns_ = 0;
  bool awaits_answers_ = false;  // from a rank that is reached
  bool has_said_why_not_ = false;
};

}  // namespace unisono::transport::nvlink
