// Ranks that meet in a store that Python has: PyTorch's, or what MPI broadcasts.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <exception>

#include "base/error.h"
#include "base/try.h"
#include "bind.h"
#include "comm/join/meet.h"
#include "convert.h"
#include "listener.h"
#include "sys/own_address.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// Calls an object's methods of the same names. What they raise is kept for the caller.
class PythonStore final : public comm::Store {
 public:
  explicit PythonStore(nb::object store)
      : store_(std::move(store)), name_(nb::cast<std::string>(store_.attr("name"))) {}

  std::string_view name() const override { return name_; }
  Status set(const std::string& key, const std::string& value) override {
    return keep([&] { store_.attr("set")(key, value); });
  }
  Status wait(const std::string& key) override {
    return keep([&] { store_.attr("wait")(key); });
  }
  Result<std::string> get(const std::string& key) override {
    std::string value;
    UNISONO_TRY(keep([&] { value = nb::cast<std::string>(store_.attr("get")(key)); }));
    return value;
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  template <class Body>
  Status keep(const Body& body) {
    try {
      body();
      return {};
    } catch (...) {
      raised_ = std::current_exception();
      return environment_error("the store raised an exception");
    }
  }

  nb::object store_;
  std::string name_;
  std::exception_ptr raised_;
};

nb::tuple meet_in(nb::object store, const std::string& key, int rank, const std::string& interface,
                  bool has_secret) {
  PythonStore shared(std::move(store));
  auto met = comm::meet(
      shared, {.key = key, .rank = rank, .interface = interface, .has_secret = has_secret});
  shared.rethrow();
  comm::Met found = take(std::move(met));
  nb::object listener = nb::none();
  if (found.listener) listener = nb::cast(Listener{std::move(found.listener)});
  return nb::make_tuple(std::move(listener), found.rendezvous, found.secret);
}

}  // namespace

void bind_meeting(nb::module_& module) {
  nb::class_<Listener>(module, "RendezvousListener")
      .def(
          "__init__",
          [](Listener* self, const std::string& interface, int port) {
            new (self) Listener{take(comm::RendezvousListener::open(interface, port))};
          },
          nb::arg("interface") = "", nb::arg("port") = 0)
      .def_prop_ro("rendezvous", [](const Listener& self) {
        return self.held ? self.held->rendezvous() : std::string();
      });
  module.def("meet", &meet_in, nb::arg("store"), nb::arg("key"), nb::arg("rank"),
             nb::arg("interface"), nb::arg("has_secret"));
  module.def("forgotten_meeting", &comm::forgotten_meeting);
  module.def(
      "own_address", [](const std::string& towards) { return sys::own_address(towards); },
      nb::arg("towards") = "");
  module.def("make_secret", [] { return take(comm::make_secret()); });
}

}  // namespace unisono::python
