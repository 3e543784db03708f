// Windows and signals. The GIL is released while they wait.

#include <unisono/communicator.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "bind.h"
#include "convert.h"
#include "interrupt.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// A window, and the communicator that it belongs to.
class HeldWindow {
 public:
  HeldWindow(const Communicator& of, std::uintptr_t address, std::size_t bytes) : of_(of) {
    const auto make = [own = Communicator(of), address, bytes]() mutable {
      return own.make_window(reinterpret_cast<void*>(address), bytes);
    };
    window_ = take(interruptible(make, [own = Communicator(of)]() mutable { own.abort(); }));
  }
  // The last one of a job may wait for other ranks, and they for the GIL.
  ~HeldWindow() {
    const nb::gil_scoped_release release;
    window_ = Window();
    of_ = Communicator();
  }
  HeldWindow(const HeldWindow&) = delete;
  HeldWindow& operator=(const HeldWindow&) = delete;

  std::size_t bytes_of(int rank) const { return take(window_.bytes_of(rank)); }

  void put(std::uintptr_t address, std::size_t bytes, int peer, std::size_t offset, int signal,
           std::optional<double> timeout) {
    const SignalOptions options{.timeout = limit(timeout)};
    check(without_gil([&] {
      return of_.put(window_, reinterpret_cast<const void*>(address), bytes, peer, offset, signal,
                     options);
    }));
  }

  void get(std::uintptr_t address, std::size_t bytes, int peer, std::size_t offset,
           std::optional<double> timeout) {
    const AccessOptions options{.timeout = limit(timeout)};
    check(without_gil([&] {
      return of_.get(window_, reinterpret_cast<void*>(address), bytes, peer, offset, options);
    }));
  }

  std::uint64_t change_word(std::string_view operation, std::uint64_t operand, int peer,
                            std::size_t offset, std::uint64_t expected,
                            std::optional<double> timeout) {
    const AccessOptions options{.timeout = limit(timeout)};
    const WordOperation named = operation_of(operation);
    return take(without_gil(
        [&] { return of_.change_word(window_, named, operand, peer, offset, expected, options); }));
  }

  void close() {
    const nb::gil_scoped_release release;
    window_ = Window();
  }

  static std::chrono::nanoseconds limit(std::optional<double> timeout) {
    return timeout ? duration_of(*timeout, "timeout") : std::chrono::nanoseconds(0);
  }

 private:
  static WordOperation operation_of(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, WordOperation>, 3> operations{
        {{"add", WordOperation::add},
         {"swap", WordOperation::swap},
         {"compare_and_swap", WordOperation::compare_and_swap}}};
    for (const auto& [known, operation] : operations)
      if (name == known) return operation;
    raise(misuse("there is no operation ", name, " on a word of a window"));
  }

  Communicator of_;
  Window window_;
};

// Peers' signals of one number, so many of each.
std::vector<SignalWait> waits_of(const std::vector<int>& peers, int signal, std::uint64_t count) {
  std::vector<SignalWait> waits;
  for (const int peer : peers) waits.push_back({.peer = peer, .signal = signal, .count = count});
  return waits;
}

}  // namespace

void bind_window(nb::module_& module) {
  nb::class_<HeldWindow>(module, "Window")
      .def(nb::init<const Communicator&, std::uintptr_t, std::size_t>(), nb::arg("communicator"),
           nb::arg("address"), nb::arg("bytes"))
      .def("bytes_of", &HeldWindow::bytes_of, nb::arg("rank"))
      .def("put", &HeldWindow::put, nb::arg("address"), nb::arg("bytes"), nb::arg("peer"),
           nb::arg("offset"), nb::arg("signal") = no_signal, nb::arg("timeout") = nb::none())
      .def("get", &HeldWindow::get, nb::arg("address"), nb::arg("bytes"), nb::arg("peer"),
           nb::arg("offset"), nb::arg("timeout") = nb::none())
      .def("change_word", &HeldWindow::change_word, nb::arg("operation"), nb::arg("operand"),
           nb::arg("peer"), nb::arg("offset"), nb::arg("expected") = 0,
           nb::arg("timeout") = nb::none())
      .def("close", &HeldWindow::close);
  module.attr("signals_of_a_pair") = signals_of_a_pair;
  module.def(
      "flush",
      [](Communicator& of, int peer, std::optional<double> timeout) {
        const AccessOptions options{.timeout = HeldWindow::limit(timeout)};
        check(without_gil([&] { return of.flush(peer, options); }));
      },
      nb::arg("communicator"), nb::arg("peer"), nb::arg("timeout") = nb::none());
  module.def(
      "signal",
      [](Communicator& of, int peer, int number, std::optional<double> timeout) {
        const SignalOptions options{.timeout = HeldWindow::limit(timeout)};
        check(without_gil([&] { return of.signal(peer, number, options); }));
      },
      nb::arg("communicator"), nb::arg("peer"), nb::arg("number"), nb::arg("timeout") = nb::none());
  module.def(
      "test_signals",
      [](Communicator& of, const std::vector<int>& peers, int number, std::uint64_t count) {
        const auto waits = waits_of(peers, number, count);
        return take(without_gil([&] { return of.test_signals(waits); }));
      },
      nb::arg("communicator"), nb::arg("peers"), nb::arg("number"), nb::arg("count"));
  module.def(
      "wait_signals",
      [](Communicator& of, const std::vector<int>& peers, int number, std::uint64_t count,
         std::optional<double> timeout) {
        const auto waits = waits_of(peers, number, count);
        const SignalOptions options{.timeout = HeldWindow::limit(timeout)};
        check(without_gil([&] { return of.wait_signals(waits, options); }));
      },
      nb::arg("communicator"), nb::arg("peers"), nb::arg("number"), nb::arg("count"),
      nb::arg("timeout") = nb::none());
}

}  // namespace unisono::python
