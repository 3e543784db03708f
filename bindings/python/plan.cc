// Plans and their steps.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind.h"
#include "convert.h"
#include "plan/json.h"
#include "plan/plan.h"
#include "plan/text.h"
#include "plan/walk.h"
#include "plan/zero_copy.h"
#include "verification.h"
#include "verify/schedule.h"
#include "verify/steps.h"
#include "verify/verify.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using plan::Plan;

// A location and a step with their loops' values put in.
struct FlatLocation {
  std::string buffer;
  std::int64_t chunk = 0;
};
struct FlatStep {
  std::int64_t number = 0;
  plan::Operation operation = plan::Operation::copy;
  std::optional<FlatLocation> source, destination;
  int count = 1;
  std::vector<std::pair<int, std::int64_t>> after;
  std::vector<int> peers;
  std::string description;
};
struct FlatThreadBlock {
  int channel = 0;
  int send_peer = -1;
  int recv_peer = -1;
  std::vector<FlatStep> steps;
};

FlatLocation flatten(const plan::Location& location, const plan::LoopValues& loops) {
  return {text(name(location.buffer)), location.index.at(loops)};
}

FlatStep flatten(const plan::ThreadBlock& block, const plan::StepCursor& cursor) {
  const plan::Step& step = *cursor.step();
  FlatStep out{.number = cursor.number(),
               .operation = step.operation,
               .source = {},
               .destination = {},
               .count = step.count,
               .after = {},
               .peers = step.peers,
               .description = verify::step_text(block, step, cursor.loops())};
  if (plan::reads_source(step.operation)) out.source = flatten(step.source, cursor.loops());
  if (plan::writes_destination(step.operation))
    out.destination = flatten(step.destination, cursor.loops());
  for (const plan::Dependency& dependency : step.after)
    out.after.emplace_back(dependency.thread_block, dependency.steps.at(cursor.loops()));
  return out;
}

const plan::RankProgram& program_of(const Plan& plan, int rank) {
  if (rank < 0 || rank >= plan.header.ranks)
    raise(misuse("rank is ", rank, "; plan ", plan.header.name, " has ranks 0 to ",
                 plan.header.ranks - 1));
  return plan.programs[static_cast<std::size_t>(rank)];
}

std::vector<FlatThreadBlock> thread_blocks(const Plan& plan, int rank) {
  const plan::RankProgram& program = program_of(plan, rank);
  std::int64_t steps = 0;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    steps += plan::unrolled_steps(block.body);
  if (steps > verify::max_scheduled_steps)
    raise(misuse("plan ", plan.header.name, " has ", steps, " steps on rank ", rank, "; at most ",
                 verify::max_scheduled_steps, " can be listed"));
  std::vector<FlatThreadBlock> out;
  for (const plan::ThreadBlock& block : program.thread_blocks) {
    FlatThreadBlock& flat =
        out.emplace_back(FlatThreadBlock{block.channel, block.send_peer, block.recv_peer, {}});
    for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
      flat.steps.push_back(flatten(block, cursor));
  }
  return out;
}

std::string to_text(const Plan& plan, std::optional<int> rank) {
  return rank ? plan::print(plan.header, program_of(plan, *rank)) : plan::print(plan);
}

verify::Report verify_plan(const Plan& plan, std::optional<int> slots, bool zero_copy,
                           bool allow_different_orders) {
  verify::Options options;
  options.slots = slots ? *slots : usable_slots();
  if (options.slots < 1)
    raise(misuse("slots is ", options.slots, "; a connection needs at least 1"));
  options.zero_copy = zero_copy;
  options.allow_different_orders = allow_different_orders;
  const nb::gil_scoped_release release;
  return verify::verify(plan, options);
}

Plan one_sided(const Plan& plan, const std::vector<int>& mapped) {
  plan::Reach reach(plan.header.ranks, true);
  std::vector<bool> is_mapped(static_cast<std::size_t>(plan.header.ranks));
  for (const int rank : mapped) {
    (void)program_of(plan, rank);
    is_mapped[static_cast<std::size_t>(rank)] = true;
  }
  for (int rank = 0; rank < plan.header.ranks; ++rank)
    if (!is_mapped[static_cast<std::size_t>(rank)]) reach.hide(rank);
  const nb::gil_scoped_release release;
  return plan::ZeroCopy(plan).under(reach);
}

void bind_steps(nb::module_& module) {
  nb::class_<FlatLocation>(module, "Location")
      .def_ro("buffer", &FlatLocation::buffer)
      .def_ro("chunk", &FlatLocation::chunk);
  nb::class_<FlatStep>(module, "Step")
      .def_ro("number", &FlatStep::number)
      .def_prop_ro("operation", [](const FlatStep& self) { return text(name(self.operation)); })
      .def_ro("source", &FlatStep::source)
      .def_ro("destination", &FlatStep::destination)
      .def_ro("count", &FlatStep::count)
      .def_ro("after", &FlatStep::after)
      .def_ro("peers", &FlatStep::peers)
      .def_prop_ro("sends", [](const FlatStep& self) { return plan::sends(self.operation); })
      .def_prop_ro("receives", [](const FlatStep& self) { return plan::receives(self.operation); })
      .def_ro("text", &FlatStep::description);
  nb::class_<FlatThreadBlock>(module, "ThreadBlock")
      .def_ro("channel", &FlatThreadBlock::channel)
      .def_ro("send_peer", &FlatThreadBlock::send_peer)
      .def_ro("recv_peer", &FlatThreadBlock::recv_peer)
      .def_ro("steps", &FlatThreadBlock::steps);
}

template <class T>
auto header_field(T plan::Header::* field) {
  return [field](const Plan& plan) { return plan.header.*field; };
}

// The buffer and chunk where a rank's chunk lies: equal for two that alias.
std::pair<std::string, std::int64_t> storage_of(const Plan& plan, int rank, std::string_view buffer,
                                                std::int64_t chunk) {
  const auto named = plan::buffer_from_name(buffer);
  if (!named || rank < 0 || rank >= plan.header.ranks)
    raise(misuse("storage of ", buffer, " of rank ", rank,
                 "; buffers are input, output and scratch, ranks 0 to ", plan.header.ranks - 1));
  const plan::Storage storage = plan::storage_of(plan.header, rank, *named, chunk);
  return {text(name(storage.buffer)), storage.chunk};
}

}  // namespace

void bind_plan(nb::module_& module) {
  using plan::Header;
  bind_steps(module);
  nb::class_<Plan>(module, "Plan")
      .def_static(
          "from_text", [](std::string_view source) { return take(plan::parse(source)); },
          nb::arg("text"))
      .def_static(
          "from_json", [](std::string_view source) { return take(plan::from_json(source)); },
          nb::arg("text"))
      .def_prop_ro("name", header_field(&Header::name))
      .def_prop_ro("collective",
                   [](const Plan& plan) { return text(name(plan.header.collective)); })
      .def_prop_ro("ranks", header_field(&Header::ranks))
      .def_prop_ro("root", header_field(&Header::root))
      .def_prop_ro("protocol", [](const Plan& plan) { return text(name(plan.header.protocol)); })
      .def_prop_ro("channels", header_field(&Header::channels))
      .def_prop_ro("in_place", header_field(&Header::in_place))
      .def_prop_ro("chunks_per_block", header_field(&Header::chunks_per_block))
      .def_prop_ro("max_step_count", header_field(&Header::max_step_count))
      .def_prop_ro("min_bytes", header_field(&Header::min_bytes))
      .def_prop_ro("max_bytes", header_field(&Header::max_bytes))
      .def(
          "input_blocks",
          [](const Plan& plan, int rank) {
            return plan::input_blocks_of(plan.header, program_of(plan, rank).rank);
          },
          nb::arg("rank"))
      .def(
          "output_blocks",
          [](const Plan& plan, int rank) {
            return plan::output_blocks_of(plan.header, program_of(plan, rank).rank);
          },
          nb::arg("rank"))
      .def(
          "scratch_blocks",
          [](const Plan& plan, int rank) { return program_of(plan, rank).scratch_blocks; },
          nb::arg("rank"))
      .def("to_text", &to_text, nb::arg("rank") = nb::none())
      .def("to_json", [](const Plan& plan) { return plan::to_json(plan); })
      .def("thread_blocks", &thread_blocks, nb::arg("rank"))
      .def("verify", &verify_plan, nb::arg("slots") = nb::none(), nb::arg("zero_copy") = true,
           nb::arg("allow_different_orders") = false)
      .def("one_sided", &one_sided, nb::arg("mapped"))
      .def("schedule", &schedule_of, nb::arg("slots") = 8)
      .def(
          "__eq__",
          [](const Plan& plan, nb::handle other) {
            return nb::isinstance<Plan>(other) && plan == nb::cast<const Plan&>(other);
          },
          nb::arg("other").none())
      .def("__hash__",
           [](const Plan& plan) {
             return std::hash<std::string>{}(plan.header.name) ^
                    static_cast<std::size_t>(plan.header.ranks);
           })
      .def("storage", &storage_of, nb::arg("rank"), nb::arg("buffer"), nb::arg("chunk"))
      .def("__repr__",
           [](const Plan& self) {
             const Header& header = self.header;
             return str("<unisono.Plan ", header.name, ": ", name(header.collective), " on ",
                        number_of(header.ranks, "rank"), ", ", name(header.protocol), ", ",
                        number_of(header.channels, "channel"),
                        header.in_place ? ", in place>" : ">");
           })
      .def("_repr_html_", &html_of);
}

}  // namespace unisono::python
