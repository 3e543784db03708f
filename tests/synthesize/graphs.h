// Link graphs, and a second opinion on schedules, for the tests of synthesis.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "synthesize/schedule.h"

namespace unisono::synthesize::test {

// Neighbours in a grid, both ways; 25 GB/s.
LinkGraph grid(int rows, int columns, double latency_ns = 500, bool wraps = false);
// Every rank on one switch.
LinkGraph star(int ranks, double gb_s = 25);
// The 8 GPUs of a DGX-1: two rings of NVLinks, one of them double.
LinkGraph dgx_1();
// Everybody can reach everybody; links of random speed, some lanes double, some switches.
LinkGraph random_graph(std::mt19937& random);

// Follows a schedule by its times alone. Empty: who sends a chunk has it, nobody gets one twice, no
// link holds more chunks than it has lanes, and in the end everybody has what the collective
// promises. Otherwise what is wrong.
std::string fault_of(const Schedule& schedule, const LinkGraph& graph, std::int64_t chunk_bytes);

}  // namespace unisono::synthesize::test
