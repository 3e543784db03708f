// MPI in the comparison: `mpirun -n N mpi_bench SOCKET`. Built on demand against whichever
// MPI is installed; unisono/bench/peers.py says how, and with which settings it is run.
// The C API is all that is used; the C++ one, where it still is, warns.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "worker.h"

namespace {

using unisono::peers::Kind;
using unisono::peers::Operation;

std::string outcome(int code) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

class Mpi final : public unisono::peers::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string all(text, static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of("\n,"));
  }
  std::string barrier() override { return outcome(MPI_Barrier(MPI_COMM_WORLD)); }

  std::string run(const Operation& operation) override {
    const int count = static_cast<int>(operation.count);
    const void* input = operation.in_place ? MPI_IN_PLACE : operation.input;
    void* output = operation.output;
    switch (operation.kind) {
      case Kind::all_reduce:
        return outcome(MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
      case Kind::all_gather:
        return outcome(
            MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, MPI_COMM_WORLD));
      case Kind::reduce_scatter:
        return outcome(MPI_Reduce_scatter_block(operation.input, output, count, MPI_FLOAT, MPI_SUM,
                                                MPI_COMM_WORLD));
      case Kind::broadcast:
        return outcome(MPI_Bcast(output, count, MPI_FLOAT, 0, MPI_COMM_WORLD));
      case Kind::all_to_all:
        return outcome(MPI_Alltoall(operation.input, count, MPI_FLOAT, output, count, MPI_FLOAT,
                                    MPI_COMM_WORLD));
      case Kind::send_recv:
        return ping_pong(operation, count);
    }
    return "no such collective";
  }

 private:
  std::string ping_pong(const Operation& operation, int count) const {
    const int peer = rank_ ^ 1;
    if (peer >= size_) return {};
    const auto send = [&] {
      return MPI_Send(operation.input, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
    };
    const auto receive = [&] {
      return MPI_Recv(operation.output, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
    };
    const bool first = rank_ % 2 == 0;
    const int code = first ? send() : receive();
    return code != MPI_SUCCESS ? outcome(code) : outcome(first ? receive() : send());
  }

  int rank_ = 0, size_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::string why = "usage: mpi_bench SOCKET";
  if (argc == 2) {
    Mpi mpi;
    why = unisono::peers::serve(mpi, argv[1]);
  }
  if (!why.empty()) {
    std::fprintf(stderr, "mpi_bench: %s\n", why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
