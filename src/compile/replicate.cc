// Replication: a step of a fragment that is parallelised n times becomes n steps, each with its
// part of every chunk and on a channel of its own.
//
// Assumes: operations in the order of the trace.
// Establishes: every operation stands for one instance. Chunks are divided into `factor` parts, the
// least common multiple of all fragments, so that the parts of any two fragments fit together.
// Channels are numbered from 0 without gaps; the i-th instance of the user's channel c is always
// the same channel, so that what flows through several fragments stays on it.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "compile/passes.h"

namespace unisono::compile {
namespace {

constexpr int most_parts = 4096;

}  // namespace

Status replicate(Module& module) {
  const std::vector<Operation>& traced = module.trace->operations();
  const int everywhere = module.options.instances;
  std::array<int, max_channel + 1> instances{};
  std::int64_t factor = everywhere;
  for (const Operation& it : traced) {
    instances[it.channel] = std::max(instances[it.channel], it.parallel * everywhere);
    if (it.parallel > 1) factor = std::lcm(factor, std::int64_t{it.parallel} * everywhere);
    if (factor > most_parts)
      return misuse(module.trace->where(it.line), "parallelize(", int{it.parallel},
                    ") and the other fragments divide each chunk into ", factor,
                    " parts; the limit is ", most_parts);
  }
  std::array<int, max_channel + 1> first{};
  int channels = 0;
  for (std::size_t channel = 0; channel < instances.size(); ++channel) {
    first[channel] = channels;
    channels += instances[channel];
  }
  if (channels > max_channel + 1)
    return misuse("program ", module.header.name, ": its channels and instances need ", channels,
                  " channels; a plan has at most ", max_channel + 1);
  module.header.channels = std::max(channels, 1);
  module.factor = static_cast<int>(factor);

  if (factor == 1) {
    module.operations = traced;
    for (Operation& it : module.operations)
      it.channel = static_cast<std::uint8_t>(first[it.channel]);
    return {};
  }
  const Layout& coarse = module.trace->layout();
  const std::int64_t chunks = std::int64_t{module.header.chunks_per_block} * factor;
  if (chunks > std::int64_t{1} << 20 || coarse.cells() * factor > std::int64_t{1} << 26)
    return misuse("program ", module.header.name, ": ", factor, " instances make ", chunks,
                  " chunks of a block, ", coarse.cells() * factor,
                  " of all ranks; fewer instances or chunks are needed");
  module.header.chunks_per_block = static_cast<int>(chunks);
  module.layout = coarse.refined(module.factor);
  const auto f = static_cast<std::int32_t>(factor);
  for (const Operation& it : traced) {
    const int parts = it.parallel * everywhere;
    // Cells are numbered alike in both layouts, each `factor` times as far.
    const std::int32_t size = it.count * f / parts;
    for (int part = 0; part < parts; ++part) {
      Operation one = it;
      if (moves_data(it.kind)) {
        one.source = it.source * f + part * size;
        one.destination = it.destination * f + part * size;
        one.count = size;
      }
      one.channel = static_cast<std::uint8_t>(first[it.channel] + part);
      one.parallel = 1;
      module.operations.push_back(one);
    }
  }
  return {};
}

}  // namespace unisono::compile
