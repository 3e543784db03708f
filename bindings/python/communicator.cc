// Communicators and started calls. The GIL is released while they wait.

#include <unisono/communicator.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "call.h"
#include "comm/core.h"
#include "convert.h"
#include "interrupt.h"
#include "listener.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// Python holds these. The last one of a job may wait for other ranks, and they for the GIL.
class HeldCommunicator : public Communicator {
 public:
  HeldCommunicator(Communicator of) : Communicator(std::move(of)) {}
  HeldCommunicator(const HeldCommunicator&) = default;
  HeldCommunicator(HeldCommunicator&&) = default;
  ~HeldCommunicator() {
    const nb::gil_scoped_release release;
    static_cast<Communicator&>(*this) = Communicator();
  }
};

HeldCommunicator init(int rank, int world_size, std::string rendezvous, std::string secret,
                      std::string node, std::string interface, std::string transport,
                      double timeout, double bootstrap_timeout, Listener* listener, int device,
                      const nb::dict& calls, const SettingTexts& settings, bool is_listening) {
  const CallOptions defaults = call_options_of(calls);
  is_listening |= listener != nullptr && listener->held.has_value();
  InitOptions options{.rank = rank,
                      .world_size = world_size,
                      .rendezvous = std::move(rendezvous),
                      .secret = std::move(secret),
                      .node = std::move(node),
                      .interface = std::move(interface),
                      .transport = std::move(transport),
                      .timeout = duration_of(timeout, "timeout"),
                      .bootstrap_timeout = duration_of(bootstrap_timeout, "bootstrap_timeout"),
                      .device = device,
                      .policy = defaults.policy,
                      .max_sms = defaults.max_sms,
                      .shared_key = {},
                      .settings = values_of(settings)};
  if (!is_listening) return take(interruptible([options] { return Communicator::init(options); }));
  auto held = std::make_shared<Listener>();
  if (listener != nullptr) std::swap(*held, *listener);
  return take(interruptible([options, held]() -> Result<Communicator> {
    auto job = comm::Job::join(options, std::move(held->held), true);
    if (!job.ok()) return job.take_error();
    auto world = (*job)->take_world();
    auto core = Communicator::Core::make(std::move(*job), std::move(world), "world");
    if (!core.ok()) return core.take_error();
    return Communicator(std::move(*core));
  }));
}

std::optional<HeldCommunicator> split(Communicator& communicator, int color, int key) {
  Communicator made = take(
      interruptible([communicator, color, key]() mutable { return communicator.split(color, key); },
                    [communicator]() mutable { communicator.abort(); }));
  if (!made.valid()) return std::nullopt;
  return made;
}

HeldCommunicator shrink(Communicator& communicator, const std::vector<int>& excluded) {
  return take(
      interruptible([communicator, excluded]() mutable { return communicator.shrink(excluded); }));
}

void destroy(Communicator& communicator) {
  check(interruptible([communicator]() mutable { return communicator.destroy(); },
                      [communicator]() mutable { communicator.abort(); }));
}

// A call that a daemon thread waits in would keep the process until the call's own deadline.
constexpr std::chrono::seconds patience_at_exit(2);

// Aborts a communicator that is not destroyed in time. Without a thread it never does.
struct AbortAtExit {
  std::promise<void> is_destroyed;
  Result<std::thread> thread;

  explicit AbortAtExit(const Communicator& communicator)
      : thread(sys::start_thread(
            "ends the calls of daemon threads",
            [own = communicator, end = is_destroyed.get_future().share()]() mutable {
              if (end.wait_for(patience_at_exit) == std::future_status::timeout) own.abort();
            })) {}
  ~AbortAtExit() {
    is_destroyed.set_value();
    if (thread.ok()) thread->join();
  }
};

void destroy_at_exit(Communicator& communicator) {
  const AbortAtExit otherwise(communicator);
  destroy(communicator);
}

Work submit_messages(Communicator& communicator, const std::vector<const Message*>& messages,
                     const nb::dict& given, std::optional<std::uintptr_t> stream) {
  std::vector<Message> all;
  for (const Message* message : messages) all.push_back(*message);
  const CallOptions options = call_options_of(given, stream);
  return take(without_gil([&] { return communicator.submit(all, options); }));
}

// An uncontended message without a tag runs inline, which no Work is made for.
void run_message(Communicator& communicator, const Message& message, const nb::dict& given,
                 std::optional<std::uintptr_t> stream) {
  const CallOptions options = call_options_of(given, stream);
  check(without_gil([&]() -> Status {
    const auto& [is_send, sent, received, count, type, peer, tag] = message;
    if (tag == 0 && peer != any_source)
      return is_send ? communicator.send(sent, count, type, peer, options)
                     : communicator.recv(received, count, type, peer, options);
    auto work = communicator.submit(std::span(&message, 1), options);
    if (!work.ok()) return work.take_error();
    return work->wait();
  }));
}

std::string state_of(const Work& work) {
  if (!work.done()) return "running";
  return work.status().ok() ? "complete" : "failed";
}

void wait(Work& work, std::optional<double> timeout) {
  if (!timeout) return check(without_gil([&] { return work.wait(); }));
  const auto patience = duration_of(*timeout, "timeout");
  check(without_gil([&] { return work.wait_for(patience); }));
}

void bind_memory(nb::module_& module) {
  nb::class_<ConnectionMemory>(module, "ConnectionMemory")
      .def_ro("peer", &ConnectionMemory::peer)
      .def_ro("channel", &ConnectionMemory::channel)
      .def_ro("transport", &ConnectionMemory::transport)
      .def_ro("bytes", &ConnectionMemory::bytes);
  nb::class_<MemoryReport>(module, "Memory")
      .def_ro("total_bytes", &MemoryReport::total_bytes)
      .def_ro("scratch_bytes", &MemoryReport::scratch_bytes)
      .def_ro("plans_bytes", &MemoryReport::plans_bytes)
      .def_ro("record_bytes", &MemoryReport::record_bytes)
      .def_ro("device_bytes", &MemoryReport::device_bytes)
      .def_ro("registered_bytes", &MemoryReport::registered_bytes)
      .def_ro("mapped_bytes", &MemoryReport::mapped_bytes)
      .def_ro("connections", &MemoryReport::connections);
}

}  // namespace

void bind_communicator(nb::module_& module) {
  bind_memory(module);
  nb::class_<Work>(module, "Work")
      .def("test", [](Work& work) { return without_gil([&] { return work.test(); }); })
      .def("wait", &wait, nb::arg("timeout") = nb::none())
      .def_prop_ro("state", &state_of)
      .def_prop_ro("sequence", &Work::sequence)
      .def_prop_ro("source", &Work::source);

  nb::class_<Communicator>(module, "AnyCommunicator");
  nb::class_<HeldCommunicator, Communicator>(module, "Communicator")
      .def_static("init", &init, nb::arg("rank") = -1, nb::arg("world_size") = -1,
                  nb::arg("rendezvous") = "", nb::arg("secret") = "", nb::arg("node") = "",
                  nb::arg("interface") = "", nb::arg("transport") = "", nb::arg("timeout") = 0.0,
                  nb::arg("bootstrap_timeout") = 0.0, nb::arg("listener") = nb::none(),
                  nb::arg("device") = -1, nb::arg("calls") = nb::dict(),
                  nb::arg("settings") = SettingTexts(), nb::arg("is_listening") = false)
      .def_prop_ro("compares_calls", &Communicator::compares_calls)
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("nodes", &Communicator::nodes)
      .def_prop_ro("id", &Communicator::id)
      .def_prop_ro("device", &Communicator::device)
      .def_prop_ro("world_ranks", &Communicator::world_ranks)
      .def("node_of", &Communicator::node_of, nb::arg("rank"))
      .def(
          "run",
          [](Communicator& self, const OwnedCall& call) {
            check(without_gil([&] { return self.run(call.call); }));
          },
          nb::arg("call"))
      .def(
          "submit",
          [](Communicator& self, const OwnedCall& call) {
            return take(without_gil([&] { return self.submit(call.call); }));
          },
          nb::arg("call"))
      .def("submit_messages", &submit_messages, nb::arg("messages"),
           nb::arg("options") = nb::dict(), nb::arg("stream") = nb::none())
      .def("run_message", &run_message, nb::arg("message"), nb::arg("options") = nb::dict(),
           nb::arg("stream") = nb::none())
      .def("split", &split, nb::arg("color"), nb::arg("key"))
      .def("shrink", &shrink, nb::arg("excluded"))
      .def("check_failure", [](const Communicator& self) { check(self.failure()); })
      .def(
          "explain",
          [](const Communicator& self, std::string_view collective, const Size& bytes,
             std::string_view type, std::string_view operation, bool in_place,
             const nb::dict& options) {
            return take(self.explain(collective_of(collective), bytes_of(bytes),
                                     explain_options(type, operation, in_place, options)));
          },
          nb::arg("collective"), nb::arg("bytes"), nb::arg("type") = "",
          nb::arg("operation") = "sum", nb::arg("in_place") = false,
          nb::arg("options") = nb::dict())
      .def(
          "register_plans",
          [](Communicator& self, const std::vector<std::string>& plans, std::uint64_t min_bytes,
             std::optional<std::uint64_t> max_bytes) {
            check(without_gil([&] {
              return self.register_plans(plans, min_bytes, max_bytes.value_or(UINT64_MAX));
            }));
          },
          nb::arg("plans"), nb::arg("min_bytes") = 0, nb::arg("max_bytes") = nb::none())
      .def(
          "register_memory",
          [](Communicator& self, std::uintptr_t address, std::size_t bytes) {
            check(without_gil(
                [&] { return self.register_memory(reinterpret_cast<void*>(address), bytes); }));
          },
          nb::arg("address"), nb::arg("bytes"))
      .def(
          "refuse_call",
          [](Communicator& self, std::string_view why) {
            check(without_gil([&] { return self.refuse_call(why); }));
          },
          nb::arg("why"))
      .def(
          "custom_blocks",
          [](const Communicator& self, std::string_view program) {
            const auto blocks = take(self.custom_blocks(program));
            return std::pair(blocks.input, blocks.output);
          },
          nb::arg("program"))
      .def("memory",
           [](const Communicator& self) { return without_gil([&] { return self.memory(); }); })
      .def("dump_record", &Communicator::dump_record)
      .def("dump",
           [](const Communicator& self) { check(without_gil([&] { return self.dump(); })); })
      // For other extensions of this process: the address of the C++ object, and a copy of one.
      .def_prop_ro("handle",
                   [](const Communicator& self) { return reinterpret_cast<std::uintptr_t>(&self); })
      .def_static(
          "from_handle",
          [](std::uintptr_t handle) {
            return HeldCommunicator(*reinterpret_cast<const Communicator*>(handle));
          },
          nb::arg("handle"))
      .def("abort", &Communicator::abort, nb::call_guard<nb::gil_scoped_release>())
      .def("destroy", &destroy)
      .def("destroy_at_exit", &destroy_at_exit);
}

}  // namespace unisono::python
