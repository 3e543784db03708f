// This rank's part in the comparison with other libraries, in compiled code from end to end.

#include <unisono/communicator.h>

#include <nanobind/stl/string.h>

#include "base/error.h"
#include "bench.h"
#include "convert.h"
#include "interrupt.h"
#include "worker.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using peers::Kind;
using peers::Operation;

std::string outcome(const Status& status) {
  return status.ok() ? std::string() : status.error().describe();
}

class Ours final : public peers::Library {
 public:
  explicit Ours(Communicator communicator)
      : communicator_(std::move(communicator)),
        rank_(communicator_.rank()),
        size_(communicator_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override { return "Unisono " UNISONO_VERSION; }
  std::string barrier() override { return outcome(communicator_.barrier()); }

  std::string run(const Operation& operation) override {
    const auto count = static_cast<std::int64_t>(operation.count);
    const DataType type = DataType::float32;
    const void* input = operation.input;
    void* output = operation.output;
    switch (operation.kind) {
      case Kind::all_reduce:
        return outcome(communicator_.all_reduce(input, output, count, type));
      case Kind::all_gather:
        return outcome(communicator_.all_gather(input, output, count, type));
      case Kind::reduce_scatter:
        return outcome(communicator_.reduce_scatter(input, output, count, type));
      case Kind::broadcast:
        return outcome(communicator_.broadcast(input, output, count, type, 0));
      case Kind::all_to_all:
        return outcome(communicator_.all_to_all(input, output, count, type));
      case Kind::send_recv:
        return ping_pong(operation, count);
    }
    return "no such collective";
  }

 private:
  std::string ping_pong(const Operation& operation, std::int64_t count) {
    const int peer = rank_ ^ 1;
    if (peer >= size_) return {};
    const auto send = [&] {
      return communicator_.send(operation.input, count, DataType::float32, peer);
    };
    const auto receive = [&] {
      return communicator_.recv(operation.output, count, DataType::float32, peer);
    };
    const bool first = rank_ % 2 == 0;
    const Status status = first ? send() : receive();
    return status.ok() ? outcome(first ? receive() : send()) : outcome(status);
  }

  Communicator communicator_;
  int rank_, size_;
};

}  // namespace

void bind_host(nb::module_& module) {
  module.def(
      "serve_bench",
      [](Communicator& communicator, const std::string& path) {
        const std::string why = without_gil([&] {
          Ours ours(communicator);
          return peers::serve(ours, path);
        });
        if (!why.empty()) raise(environment_error(why));
      },
      nb::arg("communicator"), nb::arg("path"));
}

}  // namespace unisono::python
