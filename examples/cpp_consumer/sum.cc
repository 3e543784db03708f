// Each rank holds its own number at every place; the all-reduce gives all of them the sum.
// Start one process per rank, with torchrun's variables or Unisono's (see the reference, Settings).

#include <unisono/communicator.h>

#include <cstdio>
#include <vector>

namespace {

int fail(const unisono::Error& error) {
  std::fprintf(stderr, "%s\n", error.describe().c_str());
  return 1;
}

}  // namespace

int main() {
  auto communicator = unisono::Communicator::init();
  if (!communicator.ok()) return fail(communicator.error());

  const int ranks = communicator->size();
  std::vector<float> values(1001, static_cast<float>(communicator->rank() + 1));
  const auto count = static_cast<std::int64_t>(values.size());
  const auto done =
      communicator->all_reduce(values.data(), values.data(), count, unisono::DataType::float32);
  if (!done.ok()) return fail(done.error());

  const auto expected = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const float value : values) {
    if (value != expected) {
      std::fprintf(stderr, "expected %g, got %g\n", expected, value);
      return 1;
    }
  }
  std::printf("rank %d of %d: sum %g\n", communicator->rank(), ranks, expected);
  if (const auto ended = communicator->destroy(); !ended.ok()) return fail(ended.error());
  return 0;
}
