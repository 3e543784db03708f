// Bandwidth of the reduction kernels, for each type, operation, instruction set and size, beside
// that of memcpy in the same run.
//
// Bytes are counted as the memory sees them: a combination in place reads two operands and writes
// one (3 bytes a result byte), scale and divide read and write one (2), and so does memcpy. The
// table gives the share of memcpy's bandwidth in per cent. Out of the caches more than 100 is
// possible: what is written in place was just read, while memcpy's destination comes on top.
#include <unisono/types.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/reduce/levels.h"
#include "engine/reduce/reduce.h"

namespace {

using namespace unisono;
using Clock = std::chrono::steady_clock;

// Bytes per operand: two operands lie in a 32 KiB first-level cache, in a 512 KiB second-level one,
// and in no cache at all.
struct Size {
  const char* name;
  std::size_t operand_bytes;
};
constexpr Size sizes[] = {{"L1", 12 << 10}, {"L2", 192 << 10}, {"DRAM", 96 << 20}};

constexpr const char* operation_names[] = {"sum", "product", "min", "max", "scale", "divide"};
constexpr int operation_count = 6;
constexpr int repetitions = 5;
constexpr double repetition_seconds = 0.002;

struct Options {
  std::string json_file;
  bool all_levels = false;
};

struct Row {
  std::string_view level;
  const char* size;
  DataType type;
  double gb_s[operation_count];
};

struct Buffers {
  std::vector<unsigned char> a;
  std::vector<unsigned char> b;
};

// The best of several repetitions: other programs on the machine can only add time.
double best_seconds(const std::function<void()>& call) {
  const auto measure = [&call](int calls) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  measure(1);
  const double one = std::max(measure(1), 1e-8);
  const int calls = std::max(1, static_cast<int>(repetition_seconds / one));
  double best = measure(calls) / calls;
  for (int i = 1; i < repetitions; ++i) best = std::min(best, measure(calls) / calls);
  return best;
}

double memcpy_gb_s(Buffers& buffers, std::size_t bytes) {
  const double seconds = best_seconds([&] {
    std::memcpy(buffers.a.data(), buffers.b.data(), bytes);
    asm volatile("" : : "r"(buffers.a.data()) : "memory");
  });
  return 2.0 * static_cast<double>(bytes) / seconds * 1e-9;
}

double operation_gb_s(const engine::KernelTable& kernels, DataType type, int operation,
                      Buffers& buffers, std::size_t bytes) {
  const int row = static_cast<int>(type);
  const std::size_t count = bytes / size_bytes(type);
  void* a = buffers.a.data();
  const void* b = buffers.b.data();
  double moved = 2;
  std::function<void()> call;
  if (operation < engine::combining_operation_count) {
    moved = 3;
    call = [=, &kernels] { kernels.combine[row][operation](a, a, b, count); };
  } else if (operation == engine::combining_operation_count) {
    call = [=, &kernels] { kernels.scale[row](a, a, count, engine::scale_factor(1.0)); };
  } else {
    call = [=, &kernels] { kernels.divide[row](a, a, count, 8); };
  }
  return moved * static_cast<double>(bytes) / best_seconds(call) * 1e-9;
}

// Zeros as second operand keep repeated sums in place from overflowing.
Buffers make_buffers(std::size_t bytes) {
  Buffers buffers{std::vector<unsigned char>(bytes), std::vector<unsigned char>(bytes)};
  unsigned state = 1;
  for (unsigned char& byte : buffers.a) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return buffers;
}

void print_table(std::string_view level, const Size& size, double limit,
                 const std::vector<Row>& rows) {
  std::printf("\n%.*s, %s (%zu KiB an operand): GB/s moved (%% of memcpy's %.1f)\n%-13s",
              static_cast<int>(level.size()), level.data(), size.name, size.operand_bytes >> 10,
              limit, "");
  for (const char* operation : operation_names) std::printf("%14s", operation);
  std::printf("\n");
  for (const Row& row : rows) {
    if (row.level != level || row.size != size.name) continue;
    std::printf("%-13s", std::string(name(row.type)).c_str());
    for (const double gb_s : row.gb_s) std::printf("%8.1f (%3.0f)", gb_s, 100 * gb_s / limit);
    std::printf("\n");
  }
}

bool write_json(const std::string& file_name, const double (&limits)[std::size(sizes)],
                const std::vector<Row>& rows) {
  std::FILE* file = std::fopen(file_name.c_str(), "w");
  if (file == nullptr) return false;
  // Caches are a core's own, but memory is shared with whatever else ran.
  double load[1] = {0};
  getloadavg(load, 1);
  std::fprintf(file, "{\"unit\": \"GB/s moved\", \"load_average\": %.1f, \"memcpy\": {", load[0]);
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    std::fprintf(file, "%s\"%s\": %.1f", i == 0 ? "" : ", ", sizes[i].name, limits[i]);
  }
  std::fprintf(file, "},\n\"rows\": [");
  const char* separator = "\n";
  for (const Row& row : rows) {
    std::fprintf(file, "%s{\"level\": \"%s\", \"size\": \"%s\", \"type\": \"%s\"", separator,
                 std::string(row.level).c_str(), row.size, std::string(name(row.type)).c_str());
    for (int i = 0; i < operation_count; ++i) {
      std::fprintf(file, ", \"%s\": %.1f", operation_names[i], row.gb_s[i]);
    }
    std::fprintf(file, "}");
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      options.json_file = argv[++i];
    } else if (argument == "--all-levels") {
      options.all_levels = true;
    } else {
      std::fprintf(stderr, "usage: reduce_bench [--all-levels] [--json FILE]\n");
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;

  std::size_t largest = 0;
  for (const Size& size : sizes) largest = std::max(largest, size.operand_bytes);
  Buffers buffers = make_buffers(largest);
  double limits[std::size(sizes)] = {};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const std::size_t bytes = sizes[i].operand_bytes;
    for (const engine::Level& level : engine::supported_levels()) {
      for (int type = 0; type < data_type_count; ++type) {
        Row row{level.name, sizes[i].name, static_cast<DataType>(type), {}};
        for (int operation = 0; operation < operation_count; ++operation) {
          row.gb_s[operation] = operation_gb_s(*level.kernels, row.type, operation, buffers, bytes);
        }
        rows.push_back(row);
        limits[i] = std::max(limits[i], memcpy_gb_s(buffers, bytes));
      }
    }
  }
  for (const engine::Level& level : engine::supported_levels()) {
    if (!options.all_levels && level.name != engine::simd_level()) continue;
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      print_table(level.name, sizes[i], limits[i], rows);
    }
  }
  if (!options.json_file.empty() && !write_json(options.json_file, limits, rows)) {
    std::fprintf(stderr, "cannot write %s: %s\n", options.json_file.c_str(), std::strerror(errno));
    return 1;
  }
  return 0;
}
