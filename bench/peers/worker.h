// One rank of the comparison with other libraries: the loop that takes commands, fills buffers,
// times calls and checks results. It is the same for every library that has a C or C++ API, so that
// all are measured by the same instructions; bench/peers/gloo_bench.py does the same in Python.
//
// A rank connects to the driver's Unix socket and blocks in read(2) whenever it is not measured: a
// group that waits for its turn takes no processor time. The protocol is lines of text:
//
//   worker: hello <rank> <what the library calls itself>
//   driver: measure <collective> <count> <in_place> <warm_up> <repeats> <calls>
//   worker: times <wrong> <ns of a call, one for each repeat>...
//   driver: quit
//
// A worker that cannot go on says "fail <why>" and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unisono::peers {

enum class Kind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  // Ranks 2i and 2i+1 send each other `count` elements in turn; the time of one message is half
  // that of a round trip. With an odd number of ranks the last one only waits.
  send_recv,
};

// fp32, sum, root 0. `count` is in elements: of a rank's contribution for all_gather, of its result
// for reduce_scatter, of each pair's block for all_to_all, else of the whole buffer. Broadcast is
// always in place; in_place makes input and output one for all_reduce too, and all_gather's input
// the rank's own block of its output. Others run out of place: libraries differ in what in place
// means there.
struct Operation {
  Kind kind = Kind::all_reduce;
  std::size_t count = 0;
  bool in_place = false;
  const float* input = nullptr;
  float* output = nullptr;
};

// A library under measurement, with all its ranks joined.
class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string describe() const = 0;
  // An empty string, or why it failed.
  virtual std::string barrier() = 0;
  virtual std::string run(const Operation& operation) = 0;
};

// Serves the driver at the Unix socket `path` until it says quit or goes away. Returns an empty
// string, or why it ended; the driver has been told.
std::string serve(Library& library, const std::string& path);

}  // namespace unisono::peers
