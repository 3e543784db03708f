#include <array>

#include "comm/cost_model.h"
#include "comm/engine_model.h"

namespace unisono::comm {
namespace {

constexpr std::size_t largest_element_bytes = 8;

class HostModel : public EngineModel {
 public:
  explicit HostModel(const transport::FifoOptions& fifo_options) : fifo_options_(fifo_options) {}

  // Its largest step must fit a slot.
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    const plan::Header header = entry.header(request);
    return static_cast<std::size_t>(header.max_step_count) * largest_element_bytes <=
           transport::slot_payload_bytes(fifo_options_, request.protocol);
  }
  std::string_view name() const override { return "host"; }
  std::span<const int> channels() const override {
    static constexpr std::array one{1};
    return one;
  }
  double time_us(const algorithm::Entry&, const algorithm::Request& request,
                 const algorithm::Cost& cost, double) const override {
    return host_cost_model().time_us(cost, request.protocol);
  }
  int thread_blocks(const algorithm::Entry&, const algorithm::Request&, double) const override {
    return 0;
  }

 private:
  transport::FifoOptions fifo_options_;
};

}  // namespace

std::shared_ptr<const EngineModel> host_model(const transport::FifoOptions& fifo_options) {
  return std::make_shared<HostModel>(fifo_options);
}

}  // namespace unisono::comm
