// The language's native part: programs are traced into compile::Trace, and compiled.
//
// A step of a program is one call. What it costs decides how large a program can be written as
// plain loops, so the place in the user's source is found by code object and instruction,
// remembered, and buffers are recognised by the identity of their names.

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>

#include "base/error.h"
#include "bind.h"
#include "compile/compile.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using compile::Chunk;
using compile::Kind;
using compile::Trace;

// ProgramError for what the program's author can change.
[[noreturn]] void raise_program(const Error& error) {
  if (error.kind != ErrorKind::misuse) raise(error);
  const nb::object exception =
      nb::module_::import_("unisono.errors").attr("ProgramError")(error.message);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

template <class T>
T take_program(Result<T> result) {
  if (!result.ok()) [[unlikely]]
    raise_program(result.error());
  return std::move(*result);
}
void check_program(const Status& status) {
  if (!status.ok()) raise_program(status.error());
}

// The lines of the user's source that call steps.
class Lines {
 public:
  // Of the Python function that is calling.
  std::int32_t current(Trace& trace) {
    PyFrameObject* frame = PyEval_GetFrame();
    if (frame == nullptr) return 0;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const int instruction = PyFrame_GetLasti(frame);
    Slot& slot = slots_[(reinterpret_cast<std::uintptr_t>(code) / 16 +
                         static_cast<std::uintptr_t>(instruction)) %
                        slots_.size()];
    if (slot.code == code && slot.instruction == instruction) [[likely]] {
      Py_DECREF(code);
      return slot.line;
    }
    // The code object is kept: another one must not come to lie where it was.
    codes_.push_back(nb::steal(reinterpret_cast<PyObject*>(code)));
    nb::handle name = code->co_filename;
    slot = {code, instruction,
            trace.add_line(nb::cast<std::string>(name), PyFrame_GetLineNumber(frame))};
    return slot.line;
  }

 private:
  struct Slot {
    PyCodeObject* code = nullptr;
    int instruction = 0;
    std::int32_t line = 0;
  };
  std::array<Slot, 256> slots_{};
  std::vector<nb::object> codes_;
};

class PyTrace {
 public:
  explicit PyTrace(Trace program) : trace(std::move(program)) {}

  std::int32_t line() { return lines_.current(trace); }

  int buffer(nb::handle name) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i].ptr() == name.ptr()) return buffers_[i];
    if (!nb::isinstance<nb::str>(name))
      raise_program(misuse(trace.where(line()), "a buffer is named by a string, not by a ",
                           nb::cast<std::string>(nb::str(name.type().attr("__name__")))));
    const auto text = nb::cast<std::string>(name);
    const int found = trace.layout().find(text);
    if (found < 0) {
      std::vector<std::string> known;
      for (int i = 0; i < trace.layout().buffers(); ++i)
        known.push_back(trace.layout().buffer_name(i));
      raise_program(misuse(trace.where(line()), "there is no buffer '", text, "'; there are ",
                           join(known), ". scratch(name, chunks) makes one"));
    }
    // A program names few buffers, but could build their names anew each time.
    if (names_.size() < 16) {
      names_.push_back(nb::borrow(name));
      buffers_.push_back(found);
    }
    return found;
  }

  Trace trace;

 private:
  Lines lines_;
  std::vector<nb::object> names_;
  std::vector<int> buffers_;
};

// Keeps the trace's Python object alive.
class Owner {
 public:
  Owner(nb::handle object, PyTrace* trace) : object_(nb::borrow(object)), trace_(trace) {}
  PyTrace* operator->() const { return trace_; }
  bool is(const Owner& other) const { return trace_ == other.trace_; }

 private:
  nb::object object_;
  PyTrace* trace_;
};

struct PyChunk {
  Owner owner;
  Chunk chunk;

  compile::Layout::Names names() const { return owner->trace.layout().names(chunk.cell); }
};

Owner owner_of(nb::handle self) { return {self, nb::cast<PyTrace*>(self)}; }

void check_same(const Owner& a, const Owner& b) {
  if (!a.is(b))
    raise_program(misuse(a->trace.where(a->line()), "the chunks belong to different programs"));
}

PyChunk take_chunk(nb::handle self, int rank, nb::handle buffer, std::int64_t index,
                   std::int64_t count) {
  Owner owner = owner_of(self);
  const int number = owner->buffer(buffer);
  auto chunk = owner->trace.take(rank, number, index, count, owner->line());
  return {std::move(owner), take_program(std::move(chunk))};
}

// Another rank, buffer or index than the chunk's own, where they are given.
Chunk target_of(const PyChunk& source, nb::handle buffer, std::optional<std::int64_t> index,
                int rank, std::int32_t line) {
  Trace& trace = source.owner->trace;
  if (!buffer.is_none() && index)
    return take_program(
        trace.place(rank, source.owner->buffer(buffer), *index, source.chunk.count, line));
  const auto names = source.names();
  const int number = buffer.is_none() ? names.buffer : source.owner->buffer(buffer);
  return take_program(
      trace.place(rank, number, index ? *index : names.chunk, source.chunk.count, line));
}

// A whole number that a step was given, or what it is instead.
template <class T>
T whole_number(const Owner& owner, nb::handle value, std::string_view what) {
  T number = 0;
  if (!nb::try_cast(value, number))
    raise_program(misuse(owner->trace.where(owner->line()), what, " is a whole number, not ",
                         nb::cast<std::string>(nb::repr(value))));
  return number;
}

int channel_of(const Owner& owner, nb::handle channel) {
  return channel.is_none() ? -1 : whole_number<int>(owner, channel, "a channel");
}

std::optional<std::int64_t> index_of(const Owner& owner, nb::handle index) {
  if (index.is_none()) return std::nullopt;
  return whole_number<std::int64_t>(owner, index, "an index");
}

PyChunk copy_chunk(const PyChunk& self, int rank, nb::handle buffer, nb::handle index,
                   nb::handle channel) {
  const std::int32_t line = self.owner->line();
  const Chunk target = target_of(self, buffer, index_of(self.owner, index), rank, line);
  return {self.owner, take_program(self.owner->trace.add(Kind::copy, self.chunk, target,
                                                         channel_of(self.owner, channel), line))};
}

PyChunk reduce_chunk(const PyChunk& self, const PyChunk& other, nb::handle channel) {
  check_same(self.owner, other.owner);
  return {self.owner,
          take_program(self.owner->trace.add(Kind::reduce, other.chunk, self.chunk,
                                             channel_of(self.owner, channel), self.owner->line()))};
}

PyChunk part_of(const PyChunk& self, nb::handle key) {
  Chunk part = self.chunk;
  std::int64_t first = 0;
  std::int64_t end = 0;
  if (PySlice_Check(key.ptr())) {
    Py_ssize_t start = 0, stop = 0, step = 1;
    if (PySlice_Unpack(key.ptr(), &start, &stop, &step) < 0) throw nb::python_error();
    PySlice_AdjustIndices(part.count, &start, &stop, step);
    if (step != 1)
      raise_program(misuse(self.owner->trace.where(self.owner->line()),
                           "a part of chunks with step ", step, "; parts are contiguous"));
    first = start;
    end = stop;
  } else {
    first = whole_number<std::int64_t>(self.owner, key, "the number of a chunk");
    if (first < 0) first += part.count;
    end = first + 1;
  }
  if (first < 0 || first >= end || end > part.count) {
    if (!PySlice_Check(key.ptr())) throw nb::index_error("no such chunk");
    raise_program(misuse(self.owner->trace.where(self.owner->line()), "an empty part of ",
                         part.count, " chunks"));
  }
  part.cell += static_cast<std::int32_t>(first);
  part.count = static_cast<std::int32_t>(end - first);
  return {self.owner, part};
}

std::string describe(const PyChunk& self) {
  const auto names = self.names();
  return str("chunk(", names.rank, ", \"", self.owner->trace.layout().buffer_name(names.buffer),
             "\", ", names.chunk, ", ", self.chunk.count, ")");
}

// Integers of an argument that may be one for all lanes, or one for each.
class Lanes {
 public:
  explicit Lanes(nb::handle values) {
    if (PyLong_Check(values.ptr())) {
      one_ = nb::cast<std::int64_t>(values);
      return;
    }
    const nb::object array =
        nb::module_::import_("numpy").attr("ascontiguousarray")(values, nb::arg("dtype") = "int64");
    array_ = nb::cast<Array>(array);
  }
  bool is_one() const { return !array_.is_valid(); }
  std::size_t size() const { return is_one() ? 1 : array_.size(); }
  std::int64_t operator[](std::size_t i) const { return is_one() ? one_ : array_.data()[i]; }

 private:
  using Array = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  std::int64_t one_ = 0;
  Array array_;
};

// Chunks of many ranks at once: a step on them is one step of each, in their order.
struct PyChunks {
  Owner owner;
  std::vector<Chunk> chunks;
};

std::size_t lanes_of(PyTrace& trace, std::initializer_list<const Lanes*> all) {
  std::size_t lanes = 1;
  for (const Lanes* one : all)
    if (!one->is_one()) lanes = one->size();
  for (const Lanes* one : all)
    if (!one->is_one() && one->size() != lanes)
      raise_program(misuse(trace.trace.where(trace.line()), "arrays of ", lanes, " and of ",
                           one->size(), " elements; ranks and indices must be as many"));
  return lanes;
}

int rank_at(const Lanes& ranks, std::size_t lane) {
  const std::int64_t rank = ranks[lane];
  return rank < 0 || rank > compile::max_ranks ? -1 : static_cast<int>(rank);
}

PyChunks take_chunks(nb::handle self, nb::handle rank, nb::handle buffer, nb::handle index,
                     std::int64_t count) {
  PyChunks out{owner_of(self), {}};
  const int number = out.owner->buffer(buffer);
  const Lanes ranks(rank);
  const Lanes indices(index);
  const std::size_t lanes = lanes_of(*out.owner.operator->(), {&ranks, &indices});
  const std::int32_t line = out.owner->line();
  out.chunks.reserve(lanes);
  for (std::size_t i = 0; i < lanes; ++i)
    out.chunks.push_back(
        take_program(out.owner->trace.take(rank_at(ranks, i), number, indices[i], count, line)));
  return out;
}

PyChunks copy_chunks(const PyChunks& self, nb::handle rank, nb::handle buffer, nb::handle index,
                     nb::handle channel) {
  PyChunks out{self.owner, {}};
  const int number = self.owner->buffer(buffer);
  const Lanes ranks(rank);
  const Lanes indices(index);
  const std::size_t lanes = lanes_of(*self.owner.operator->(), {&ranks, &indices});
  Trace& trace = self.owner->trace;
  const std::int32_t line = self.owner->line();
  if (lanes != 1 && lanes != self.chunks.size())
    raise_program(misuse(trace.where(line), self.chunks.size(), " chunks go to ", lanes,
                         " places; they must be as many"));
  out.chunks.reserve(self.chunks.size());
  for (std::size_t i = 0; i < self.chunks.size(); ++i) {
    const Chunk& source = self.chunks[i];
    const Chunk target =
        take_program(trace.place(rank_at(ranks, i), number, indices[i], source.count, line));
    out.chunks.push_back(
        take_program(trace.add(Kind::copy, source, target, channel_of(self.owner, channel), line)));
  }
  return out;
}

PyChunks reduce_chunks(const PyChunks& self, const PyChunks& other, nb::handle channel) {
  check_same(self.owner, other.owner);
  Trace& trace = self.owner->trace;
  const std::int32_t line = self.owner->line();
  if (self.chunks.size() != other.chunks.size())
    raise_program(misuse(trace.where(line), other.chunks.size(), " chunks are added to ",
                         self.chunks.size(), "; they must be as many"));
  PyChunks out{self.owner, {}};
  out.chunks.reserve(self.chunks.size());
  for (std::size_t i = 0; i < self.chunks.size(); ++i)
    out.chunks.push_back(take_program(trace.add(Kind::reduce, other.chunks[i], self.chunks[i],
                                                channel_of(self.owner, channel), line)));
  return out;
}

Trace make_trace(std::string name, std::string_view collective, int ranks, int nodes, int root,
                 int chunks, bool in_place, std::pair<int, int> blocks) {
  compile::Program program;
  program.nodes = nodes;
  plan::Header& header = program.header;
  header.name = std::move(name);
  header.collective = collective_of(collective);
  header.ranks = ranks;
  header.root = root;
  header.chunks_per_block = chunks;
  header.in_place = in_place;
  header.input_blocks = blocks.first;
  header.output_blocks = blocks.second;
  if (ranks > 0 && root >= 0 && root < ranks) plan::set_blocks(header);
  return take_program(Trace::start(program));
}

compile::Options options_of(const nb::dict& values) {
  compile::Options options;
  for (const auto& [key, value] : values) {
    const auto name = nb::cast<std::string>(key);
    if (name == "in_place") options.in_place = nb::cast<bool>(value);
    if (name == "protocol") options.protocol = protocol_of(nb::cast<std::string>(value));
    if (name == "instances") options.instances = nb::cast<int>(value);
    if (name == "alpha_us") options.alpha_us = nb::cast<double>(value);
    if (name == "gigabytes_per_second") options.gigabytes_per_second = nb::cast<double>(value);
    if (name == "block_bytes") options.block_bytes = nb::cast<std::int64_t>(value);
    if (name == "fuse") options.fuse = nb::cast<bool>(value);
    if (name == "slots") options.slots = nb::cast<int>(value);
  }
  return options;
}

void bind_chunks(nb::module_& module) {
  nb::class_<PyChunk>(module, "Chunk")
      .def("copy", &copy_chunk, nb::arg("rank"), nb::arg("buffer") = nb::none(),
           nb::arg("index") = nb::none(), nb::kw_only(), nb::arg("channel") = nb::none(),
           R"(Copies the chunks to another place: buffer and index of their own unless given.

    before: input[0]@0 = a                     output[2]@1 = anything
    after:  input[0]@0 = a                     output[2]@1 = a
    with    p.chunk(0, "input", 0).copy(1, "output", 2)

Returns the chunks at the new place. ProgramError if this reference is stale, or the place does not
exist.)")
      .def("reduce", &reduce_chunk, nb::arg("other"), nb::kw_only(),
           nb::arg("channel") = nb::none(),
           R"(Adds other chunks, of any rank, to these.

    before: input[0]@0 = a    input[0]@1 = b
    after:  input[0]@0 = a    input[0]@1 = a + b
    with    p.chunk(1, "input", 0).reduce(p.chunk(0, "input", 0))

Returns these chunks, as they are then. ProgramError if a reference is stale.)")
      .def_prop_ro("rank", [](const PyChunk& self) { return self.chunk.rank; })
      .def_prop_ro("buffer",
                   [](const PyChunk& self) {
                     return self.owner->trace.layout().buffer_name(self.names().buffer);
                   })
      .def_prop_ro("index", [](const PyChunk& self) { return self.names().chunk; })
      .def_prop_ro("count", [](const PyChunk& self) { return self.chunk.count; })
      .def("__len__", [](const PyChunk& self) { return self.chunk.count; })
      .def("__getitem__", &part_of, nb::arg("key"))
      .def("__repr__", &describe);
  nb::class_<PyChunks>(module, "Chunks")
      .def("copy", &copy_chunks, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
           nb::kw_only(), nb::arg("channel") = nb::none())
      .def("reduce", &reduce_chunks, nb::arg("other"), nb::kw_only(),
           nb::arg("channel") = nb::none())
      .def("__len__", [](const PyChunks& self) { return self.chunks.size(); });
}

}  // namespace

void bind_lang(nb::module_& module) {
  bind_chunks(module);
  nb::class_<PyTrace>(module, "Trace")
      .def(
          "__init__",
          [](PyTrace* self, std::string name, std::string_view collective, int ranks, int nodes,
             int root, int chunks, bool in_place, std::pair<int, int> blocks) {
            new (self) PyTrace(make_trace(std::move(name), collective, ranks, nodes, root, chunks,
                                          in_place, blocks));
          },
          nb::arg("name"), nb::arg("collective"), nb::arg("ranks"), nb::arg("nodes"),
          nb::arg("root"), nb::arg("chunks"), nb::arg("in_place"), nb::arg("blocks"))
      .def(
          "set_conditions",
          [](PyTrace& self, std::vector<bool> given,
             std::vector<std::vector<std::int32_t>> required) {
            check_program(self.trace.set_conditions({std::move(given), std::move(required)}));
          },
          nb::arg("given"), nb::arg("required"))
      .def(
          "set_most_steps",
          [](PyTrace& self, std::size_t most) { self.trace.set_most_operations(most); },
          nb::arg("most"))
      .def(
          "set_home",
          [](PyTrace& self, std::string file, int line) {
            self.trace.set_home(std::move(file), line);
          },
          nb::arg("file"), nb::arg("line"))
      .def(
          "add_scratch",
          [](PyTrace& self, std::string name, std::int64_t chunks) {
            check_program(self.trace.add_scratch(std::move(name), chunks));
          },
          nb::arg("name"), nb::arg("chunks"))
      .def("chunk", &take_chunk, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
           nb::arg("count") = 1,
           R"(Takes hold of `count` chunks of a rank's buffer, from `index` on.

buffer is "input", "output" or the name of a scratch buffer. ProgramError if there are no such chunks,
or if they hold nothing yet.)")
      .def(
          "chunks", &take_chunks, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
          nb::arg("count") = 1,
          R"(As chunk, for each of an array of ranks and one of indices; an integer stands for all.)")
      .def(
          "set_parallel",
          [](PyTrace& self, int instances) {
            const int before = self.trace.parallel();
            check_program(self.trace.set_parallel(instances, self.line()));
            return before;
          },
          nb::arg("instances"))
      .def(
          "set_channel",
          [](PyTrace& self, int channel) {
            const int before = self.trace.channel();
            check_program(self.trace.set_channel(channel, self.line()));
            return before;
          },
          nb::arg("channel"))
      .def_prop_ro("operations", [](PyTrace& self) { return self.trace.operations().size(); })
      .def(
          "compile",
          [](PyTrace& self, const nb::dict& options) {
            const compile::Options wanted = options_of(options);
            const auto made = [&] {
              const nb::gil_scoped_release release;
              return compile::compile(self.trace, wanted);
            };
            return take_program(made());
          },
          nb::arg("options"))
      .def(
          "dump_after",
          [](PyTrace& self, const nb::dict& options, std::string_view pass) {
            return take_program(compile::dump_after(self.trace, options_of(options), pass));
          },
          nb::arg("options"), nb::arg("pass_name"));
}

}  // namespace unisono::python
