#include "config.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace unisono::nccl {
namespace {

// One field: since which version, and which values it may have beside "undefined".
struct Field {
  const char* name;
  int ncclConfig_t::* value;
  unsigned since;
  int least;
  int most;
};
constexpr int any = INT_MAX;
constexpr int policy_zero = 2;  // NCCL_CTA_POLICY_ZERO
constexpr std::array fields{
    Field{"blocking", &ncclConfig_t::blocking, 21400, 0, 1},
    Field{"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, any},
    Field{"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, any},
    Field{"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, any},
    Field{"splitShare", &ncclConfig_t::splitShare, 21700, 0, 1},
    Field{"trafficClass", &ncclConfig_t::trafficClass, 22500, INT_MIN, any},
    Field{"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1},
    Field{"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, 2},
    Field{"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1},
    Field{"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, any},
    Field{"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, 64},
    Field{"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1},
};

}  // namespace

ncclResult_t read_config(const ncclConfig_t* given, Config& out) {
  if (given == nullptr) return ncclSuccess;
  constexpr std::size_t head_bytes = offsetof(ncclConfig_t, blocking);
  ncclConfig_t config{};
  for (const Field& field : fields) config.*field.value = undefined_int;
  std::memcpy(&config, given, head_bytes);
  if (config.magic != config_magic || config.size < head_bytes)
    return fail(ncclInvalidArgument, text("the configuration has magic ", std::hex, std::showbase,
                                          config.magic, std::dec, " and size ", config.size,
                                          "; initialise it with NCCL_CONFIG_INITIALIZER"));
  const unsigned version = config.version;
  std::memcpy(&config, given, std::min(config.size, sizeof(config)));
  for (const Field& field : fields) {
    const int value = config.*field.value;
    if (version < field.since || value == undefined_int) {
      config.*field.value = undefined_int;
      continue;
    }
    if (value < field.least || value > field.most)
      return fail(ncclInvalidArgument,
                  text("the configuration's ", field.name, " is ", value, "; ",
                       field.most == any ? text("at least ", field.least, " is allowed")
                                         : text(field.least, " to ", field.most, " are allowed")));
  }
  if (config.minCTAs != undefined_int && config.maxCTAs != undefined_int &&
      config.minCTAs > config.maxCTAs)
    return fail(ncclInvalidArgument, text("the configuration's minCTAs is ", config.minCTAs,
                                          ", more than its maxCTAs, ", config.maxCTAs));
  if (config.blocking != undefined_int) out.is_blocking = config.blocking == 1;
  if (config.maxCTAs != undefined_int) out.max_sms = config.maxCTAs;
  if (config.CTAPolicy != undefined_int) out.prefers_zero_sm = config.CTAPolicy == policy_zero;
  return ncclSuccess;
}

}  // namespace unisono::nccl
