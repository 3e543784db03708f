// Chunks that programs of the language take hold of, and the steps that move them.

#include <nanobind/ndarray.h>

#include "bind.h"
#include "lang.h"

namespace unisono::python {
namespace {

Owner owner_of(nb::handle self) { return {self, nb::cast<PyTrace*>(self)}; }

void check_same(const Owner& a, const Owner& b) {
  if (!a.is(b))
    raise_program(misuse(a->trace.where(a->line()), "the chunks belong to different programs"));
}

PyChunk take_chunk(nb::handle self, Whole<int> rank, nb::handle buffer, Whole<std::int64_t> index,
                   Whole<std::int64_t> count) {
  Owner owner = owner_of(self);
  owner->check_open();
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

std::optional<std::int64_t> index_of(const Owner& owner, nb::handle index) {
  if (index.is_none()) return std::nullopt;
  return whole_number<std::int64_t>(*owner, index, "an index");
}

PyChunk copy_chunk(const PyChunk& self, Whole<int> rank, nb::handle buffer, nb::handle index,
                   nb::handle channel) {
  self.owner->check_open();
  const std::int32_t line = self.owner->line();
  const Chunk target = target_of(self, buffer, index_of(self.owner, index), rank, line);
  return {self.owner, take_program(self.owner->trace.add(Kind::copy, self.chunk, target,
                                                         channel_of(*self.owner, channel), line))};
}

PyChunk reduce_chunk(const PyChunk& self, const PyChunk& other, nb::handle channel) {
  check_same(self.owner, other.owner);
  self.owner->check_open();
  return {self.owner, take_program(self.owner->trace.add(Kind::reduce, other.chunk, self.chunk,
                                                         channel_of(*self.owner, channel),
                                                         self.owner->line()))};
}

PyChunk put_chunk(const PyChunk& self, Whole<int> rank, nb::handle buffer, nb::handle index,
                  nb::handle channel) {
  self.owner->check_open();
  const std::int32_t line = self.owner->line();
  const Chunk target = target_of(self, buffer, index_of(self.owner, index), rank, line);
  return {self.owner, take_program(self.owner->trace.add(Kind::put, self.chunk, target,
                                                         channel_of(*self.owner, channel), line))};
}

PyChunk read_reduce_chunk(const PyChunk& self, const PyChunk& other) {
  check_same(self.owner, other.owner);
  self.owner->check_open();
  return {self.owner, take_program(self.owner->trace.add(Kind::read_reduce, other.chunk, self.chunk,
                                                         -1, self.owner->line()))};
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
    first = whole_number<std::int64_t>(*self.owner, key, "the number of a chunk");
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
  // `what` they are, for who gives something else.
  Lanes(PyTrace& owner, nb::handle values, std::string_view what) {
    if (PyLong_Check(values.ptr())) {
      one_ = whole_number<std::int64_t>(owner, values, what);
      return;
    }
    const nb::module_ numpy = nb::module_::import_("numpy");
    const nb::object array = numpy.attr("asarray")(values);
    const auto dimensions = nb::cast<int>(array.attr("ndim"));
    const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
    if (dimensions == 0) {
      one_ = whole_number<std::int64_t>(owner, array.attr("item")(), what);
      return;
    }
    // An empty list is an array of floats.
    const bool is_whole = kind == "i" || kind == "u" || nb::len(array) == 0;
    if (dimensions != 1 || !is_whole)
      raise_program(misuse(owner.trace.where(owner.line()), what,
                           " is a whole number or a row of them, not ",
                           nb::cast<std::string>(nb::repr(values))));
    array_ = nb::cast<Array>(numpy.attr("ascontiguousarray")(array, nb::arg("dtype") = "int64"));
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
                     Whole<std::int64_t> count) {
  PyChunks out{owner_of(self), {}};
  out.owner->check_open();
  const int number = out.owner->buffer(buffer);
  const Lanes ranks(*out.owner, rank, "the rank of chunks");
  const Lanes indices(*out.owner, index, "the index of chunks");
  const std::size_t lanes = lanes_of(*out.owner, {&ranks, &indices});
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
  self.owner->check_open();
  const int number = self.owner->buffer(buffer);
  const Lanes ranks(*self.owner, rank, "the rank of chunks");
  const Lanes indices(*self.owner, index, "the index of chunks");
  const std::size_t lanes = lanes_of(*self.owner, {&ranks, &indices});
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
    out.chunks.push_back(take_program(
        trace.add(Kind::copy, source, target, channel_of(*self.owner, channel), line)));
  }
  return out;
}

PyChunks reduce_chunks(const PyChunks& self, const PyChunks& other, nb::handle channel) {
  check_same(self.owner, other.owner);
  self.owner->check_open();
  Trace& trace = self.owner->trace;
  const std::int32_t line = self.owner->line();
  if (self.chunks.size() != other.chunks.size())
    raise_program(misuse(trace.where(line), other.chunks.size(), " chunks are added to ",
                         self.chunks.size(), "; they must be as many"));
  PyChunks out{self.owner, {}};
  out.chunks.reserve(self.chunks.size());
  for (std::size_t i = 0; i < self.chunks.size(); ++i)
    out.chunks.push_back(take_program(trace.add(Kind::reduce, other.chunks[i], self.chunks[i],
                                                channel_of(*self.owner, channel), line)));
  return out;
}

}  // namespace

void bind_chunks(nb::module_& module) {
  nb::class_<PyChunk>(module, "Chunk",
                      R"(Chunks as they were when a program took hold of them.

A step that overwrites one of them makes this reference stale; steps give a fresh one.)")
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
      .def("put", &put_chunk, nb::arg("rank"), nb::arg("buffer") = nb::none(),
           nb::arg("index") = nb::none(), nb::kw_only(), nb::arg("channel") = nb::none(),
           R"(Writes the chunks into another rank's memory, which takes no part in it.

    before: input[0]@0 = a                     output[2]@1 = anything
    after:  input[0]@0 = a                     output[2]@1 on its way: a signal and a wait complete it
    with    p.chunk(0, "input", 0).put(1, "output", 2); p.signal(0, 1); p.wait(1, 0)

Returns the chunks at the new place, which can be used once rank 1 has waited. ProgramError if the
other rank may still be using what lies there.)")
      .def("read_reduce", &read_reduce_chunk, nb::arg("other"),
           R"(Adds chunks in another rank's memory to these, reading them there.

    before: output[0]@0 = a    input[0]@1 = b
    after:  output[0]@0 = a+b  input[0]@1 = b
    with    p.chunk(0, "output", 0).read_reduce(p.chunk(1, "input", 0))

Returns these chunks, as they are then. ProgramError if the other rank writes there and no signal and
wait are between.)")
      .def_prop_ro("rank", [](const PyChunk& self) { return self.chunk.rank; })
      .def_prop_ro("buffer",
                   [](const PyChunk& self) {
                     return self.owner->trace.layout().buffer_name(self.names().buffer);
                   })
      .def_prop_ro("index", [](const PyChunk& self) { return self.names().chunk; })
      .def_prop_ro("count", [](const PyChunk& self) { return self.chunk.count; })
      .def("__len__", [](const PyChunk& self) { return self.chunk.count; })
      .def("__getitem__", &part_of, nb::arg("key"),
           R"(Some of the chunks, as old as these: c[1], c[2:4].)")
      .def("__repr__", &describe);
  nb::class_<PyChunks>(module, "Chunks",
                       R"(Chunks of many ranks: a step on them is a step of each, in their order.

For programs of millions of steps; ranks and indices are integers or arrays of them.)")
      .def("copy", &copy_chunks, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
           nb::kw_only(), nb::arg("channel") = nb::none(),
           R"(As Chunk.copy, for each.

    before: input[0]@0 = a, input[0]@1 = b
    after:  output[1]@1 = a, output[1]@0 = b besides
    with    p.chunks([0, 1], "input", 0).copy([1, 0], "output", 1))")
      .def("reduce", &reduce_chunks, nb::arg("other"), nb::kw_only(),
           nb::arg("channel") = nb::none(),
           R"(As Chunk.reduce, for each with the one of `other` at its place.

    before: input[0]@0 = a, input[1]@0 = b    input[0]@1 = c, input[1]@1 = d
    after:  input[0]@0 = a + c, input[1]@0 = b + d
    with    p.chunks(0, "input", [0, 1]).reduce(p.chunks(1, "input", [0, 1])))")
      .def("__len__", [](const PyChunks& self) { return self.chunks.size(); });
}

void bind_taking(nb::class_<PyTrace>& trace) {
  trace
      .def("chunk", &take_chunk, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
           nb::arg("count") = 1,
           R"(Takes hold of `count` chunks of a rank's buffer, from `index` on.

    before: input[2]@1 = a, input[3]@1 = b
    after:  the same; c stands for both of them
    with    c = p.chunk(1, "input", 2, 2)

buffer is "input", "output" or the name of a scratch buffer. ProgramError if there are no such chunks,
or if they hold nothing yet.)")
      .def("chunks", &take_chunks, nb::arg("rank"), nb::arg("buffer"), nb::arg("index"),
           nb::arg("count") = 1,
           R"(As chunk, for each of an array of ranks and one of indices; an integer stands for all.

    before: input[3]@0 = a, input[3]@1 = b
    after:  the same; c stands for both of them
    with    c = p.chunks([0, 1], "input", 3))")
      .def(
          "signal",
          [](PyTrace& self, Whole<int> rank, Whole<int> to, nb::handle channel) {
            self.check_open();
            check_program(self.trace.signal(rank, to, channel_of(self, channel), self.line()));
          },
          nb::arg("rank"), nb::arg("to"), nb::kw_only(), nb::arg("channel") = nb::none(),
          R"(Signals another rank that this rank's earlier puts there are complete.

    before: output[2]@1 on its way from rank 0
    after:  a token of rank 0 for rank 1, behind the put
    with    p.signal(0, 1)

Every signal needs its wait. ProgramError if it has none.)")
      .def(
          "wait",
          [](PyTrace& self, Whole<int> rank, Whole<int> other, nb::handle channel) {
            self.check_open();
            check_program(self.trace.wait(rank, other, channel_of(self, channel), self.line()));
          },
          nb::arg("rank"), nb::arg("other"), nb::kw_only(), nb::arg("channel") = nb::none(),
          R"(A rank waits for the next signal of another one.

    before: a token of rank 0 for rank 1, behind a put to output[2]@1
    after:  output[2]@1 = what was put
    with    p.wait(1, 0)

ProgramError if the program has not given the signal: nobody would.)");
}

}  // namespace unisono::python
