#include "comm/device/staging.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/try.h"
#include "comm/device/staged.h"
#include "engine/relocation.h"

namespace unisono::comm {
namespace {

// Page-locked memory takes long to make: areas serve later calls, of other sizes too.
constexpr std::size_t least_bytes = std::size_t{1} << 20;

// From the buffer's begin to the end of its last block.
std::int64_t elements_of(const engine::Blocks& blocks) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < blocks.counts.size(); ++i)
    if (blocks.counts[i] > 0) end = std::max(end, blocks.displacements[i] + blocks.counts[i]);
  return end;
}

}  // namespace

class Staging::Collective final : public Staged {
 public:
  Collective(Staging& staging, const plan::Header& header, int rank, bool in_place,
             std::unique_ptr<engine::Execution> on_host)
      : Staged(staging, std::move(on_host)),
        collective_(header.collective),
        relocation_(engine::Relocation::of(header, rank, in_place)),
        input_blocks_(plan::input_blocks_of(header, rank)),
        output_blocks_(plan::output_blocks_of(header, rank)) {
    if (relocation_.way == Way::none) return;
    input_blocks_ = relocation_.input_blocks;
    output_blocks_ = relocation_.output_blocks;
  }

 private:
  using Way = engine::Relocation::Way;

  Status lay_out() override {
    const bool is_uneven = given_.is_uneven();
    const auto range = [&](const void* data, const engine::Blocks& uneven, int blocks) {
      return Range::of(data, is_uneven ? elements_of(uneven) : blocks * given_.count, given_.type);
    };
    const Range input = range(given_.input, given_.inputs, input_blocks_);
    const Range output = range(given_.output, given_.outputs, output_blocks_);
    const Places places = places_of(input, output);
    UNISONO_ASSIGN(area_, staging_.take(places.bytes));
    std::byte* const host = area_->memory.data();
    there_.clear();
    // What the plan leaves as it is comes back as it was.
    if (is_uneven || collective_ == unisono::Collective::custom)
      there_.push_back({output.begin, host + places.output, output.bytes});
    there_.push_back({input.begin, host + places.input, input.bytes});
    back_.assign(1, {output.begin, host + places.output, output.bytes});
    // A plan in place has both, where its caller may have one.
    const bool is_one_memory =
        relocation_.way == Way::in_output || relocation_.way == Way::private_memory;
    if (given_.input != nullptr || is_one_memory) given_.input = host + places.input;
    if (given_.output != nullptr || is_one_memory) given_.output = host + places.output;
    return {};
  }

  Places places_of(const Range& input, const Range& output) const {
    if (relocation_.way == Way::none) return {input, output};
    if (relocation_.way == Way::private_input) return Places::apart(input, output);
    const auto bytes = [&](int blocks) { return engine::Relocation::bytes(given_, blocks); };
    return {bytes(relocation_.input_at), bytes(relocation_.output_at),
            bytes(relocation_.memory_blocks)};
  }

  unisono::Collective collective_;
  engine::Relocation relocation_;
  std::int64_t input_blocks_;
  std::int64_t output_blocks_;
};

// Its host addresses are known before it is made: it is laid out from the start.
class Staging::Group final : public Staged {
 public:
  Group(Staging& staging, Area& area) : Staged(staging, nullptr) { area_ = &area; }
  static std::size_t size_of(std::size_t bytes) { return aligned(bytes); }
  void run_by(std::unique_ptr<engine::Execution> on_host) { on_host_ = std::move(on_host); }
  void add(const Message& message, std::byte* on_host, std::size_t bytes) {
    const void* data = message.is_send ? message.send_data : message.recv_data;
    (message.is_send ? there_ : back_)
        .push_back({reinterpret_cast<DeviceAddress>(data), on_host, bytes});
  }

 private:
  Status lay_out() override { return {}; }
};

Staging::~Staging() {
  for (auto& area : areas_) free(*area);
}

std::unique_ptr<engine::Execution> Staging::stage(const plan::Header& header, int rank,
                                                  bool in_place,
                                                  std::unique_ptr<engine::Execution> on_host) {
  return std::make_unique<Collective>(*this, header, rank, in_place, std::move(on_host));
}

Status Staging::prepare(std::span<const Message> messages, PointToPoint& on_host, Task& task) {
  const auto bytes_of = [](const Message& message) {
    return static_cast<std::size_t>(message.count) * size_bytes(message.type);
  };
  std::size_t bytes = 0;
  for (const Message& message : messages) bytes += Group::size_of(bytes_of(message));
  UNISONO_ASSIGN(Area * area, take(bytes));
  auto group = std::make_unique<Group>(*this, *area);
  std::vector<Message> there(messages.begin(), messages.end());
  std::byte* place = area->memory.data();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].is_send)
      there[i].send_data = place;
    else
      there[i].recv_data = place;
    group->add(messages[i], place, bytes_of(messages[i]));
    place += Group::size_of(bytes_of(messages[i]));
  }
  UNISONO_TRY(on_host.prepare(there, task));
  group->run_by(std::move(task.owned));
  task.owned = std::move(group);
  task.execution = task.owned.get();
  return {};
}

std::size_t Staging::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& area : areas_) bytes += area->bytes;
  return bytes;
}

bool Staging::is_copied(const Area& area) const {
  const sys::cuda::Device& device = device_.engine().device();
  const sys::cuda::Current current(device);
  return device.driver().event_query(area.event) != sys::cuda::driver_not_ready;
}

Result<Staging::Area*> Staging::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto is_free = [this](const auto& area) { return !area->is_taken && is_copied(*area); };
  const auto found = std::ranges::find_if(
      areas_, [&](const auto& area) { return is_free(area) && area->bytes >= bytes; });
  if (found != areas_.end()) {
    (*found)->is_taken = true;
    return found->get();
  }
  // A larger one serves instead of those that are too small.
  for (auto& area : areas_)
    if (is_free(area)) {
      free(*area);
      area.reset();
    }
  std::erase(areas_, nullptr);
  const auto& device = device_.engine().shared_device();
  auto area = std::make_unique<Area>();
  area->bytes = std::bit_ceil(std::max(bytes, least_bytes));
  UNISONO_ASSIGN(area->memory, sys::cuda::MappedHostMemory::allocate(device, area->bytes));
  const sys::cuda::Current current(*device);
  UNISONO_TRY(
      device->check(device->driver().event_create(&area->event, sys::cuda::event_without_timing),
                    "making an event"));
  area->is_taken = true;
  areas_.push_back(std::move(area));
  return areas_.back().get();
}

void Staging::give_back(Area& area) {
  const std::lock_guard lock(mutex_);
  area.is_taken = false;
}

void Staging::free(Area& area) const {
  while (!is_copied(area)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  const sys::cuda::Device& device = device_.engine().device();
  const sys::cuda::Current current(device);
  device.driver().event_destroy(area.event);
}

}  // namespace unisono::comm
