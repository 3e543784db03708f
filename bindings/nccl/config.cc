#include "config.h"

#include <unisono/settings.h>
#include <unisono/window.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <string_view>

namespace unisono::nccl {
namespace {

// One field: since which version, and which values it may have other than "undefined".
template <class Structure>
struct Field {
  const char* name;
  int Structure::* value;
  unsigned since;
  int least;
  int most;
};
template <class Structure>
Field(const char*, int Structure::*, unsigned, int, int) -> Field<Structure>;
constexpr int any = INT_MAX;
constexpr std::array fields{
    Field{"blocking", &ncclConfig_t::blocking, 21400, 0, 1},
    Field{"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, any},
    Field{"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, any},
    Field{"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, any},
    Field{"splitShare", &ncclConfig_t::splitShare, 21700, 0, 1},
    Field{"trafficClass", &ncclConfig_t::trafficClass, 22500, INT_MIN, any},
    Field{"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1},
    Field{"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, 3},
    Field{"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1},
    Field{"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, any},
    Field{"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, 64},
    Field{"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1},
    Field{"graphUsageMode", &ncclConfig_t::graphUsageMode, 22900, 0, 2},
    Field{"numRmaCtx", &ncclConfig_t::numRmaCtx, 22900, 1, any},
    Field{"maxP2pPeers", &ncclConfig_t::maxP2pPeers, 23000, 0, any},
    Field{"graphStreamOrdering", &ncclConfig_t::graphStreamOrdering, 23007, INT_MIN, any},
    Field{"launchOrderImplicit", &ncclConfig_t::launchOrderImplicit, 23100, 0, 1},
    Field{"numRmaSig", &ncclConfig_t::numRmaSig, 23100, 1, any},
    Field{"rmaEagerInit", &ncclConfig_t::rmaEagerInit, 23100, 0, 1},
    Field{"hostCftMode", &ncclConfig_t::hostCftMode, 23100, 1, 3},
    Field{"nvlsHostMode", &ncclConfig_t::nvlsHostMode, 23200, 0, any},
};
constexpr std::array call_fields{
    Field{"minCTAs", &ncclCollConfig_t::minCTAs, 23100, 1, any},
    Field{"maxCTAs", &ncclCollConfig_t::maxCTAs, 23100, 1, any},
    Field{"nvlsCTAs", &ncclCollConfig_t::nvlsCTAs, 23100, 1, any},
    Field{"cgaClusterSize", &ncclCollConfig_t::cgaClusterSize, 23100, 0, any},
    Field{"forceAlgSelection", &ncclCollConfig_t::forceAlgSelection, 23100, 0, 1},
    Field{"CTAPolicy", &ncclCollConfig_t::CTAPolicy, 23100, 0, 3},
};

bool is_set(int value) { return value != undefined_int; }

// Once for each kind: a newer program may make many communicators.
void tell_of_newer(const char* what, unsigned version, std::size_t unknown_bytes,
                   std::atomic<bool>& is_told) {
  if (is_told.exchange(true)) return;
  log_warning(text(what, " of NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100,
                   " is newer than 2.32.3, the last that Unisono knows: the last ", unknown_bytes,
                   " bytes of it have no effect"));
}

// Copies what the caller has of it, checks it field by field, and lets fields undefined that are
// newer than the caller.
template <class Structure, std::size_t count>
ncclResult_t read(const char* what, const char* initializer, const Structure& given,
                  const std::array<Field<Structure>, count>& known, Structure& out) {
  constexpr std::size_t head_bytes = 2 * sizeof(std::size_t);
  static std::atomic<bool> is_told = false;
  out = Structure{};
  for (const auto& field : known) out.*field.value = undefined_int;
  std::memcpy(&out, &given, head_bytes);
  if (out.magic != config_magic || out.size < head_bytes)
    return fail(ncclInvalidArgument,
                text(what, " has magic ", std::hex, std::showbase, out.magic, std::dec,
                     " and size ", out.size, "; initialise it with ", initializer));
  const unsigned version = out.version;
  if (out.size > sizeof out) tell_of_newer(what, version, out.size - sizeof out, is_told);
  std::memcpy(&out, &given, std::min(out.size, sizeof out));
  for (const auto& field : known) {
    int& value = out.*field.value;
    if (version < field.since || !is_set(value)) {
      value = undefined_int;
      continue;
    }
    if (value < field.least || value > field.most)
      return fail(ncclInvalidArgument,
                  text(what, "'s ", field.name, " is ", value, "; ",
                       field.most == any ? text("at least ", field.least, " is allowed")
                                         : text(field.least, " to ", field.most, " are allowed")));
  }
  if (is_set(out.minCTAs) && is_set(out.maxCTAs) && out.minCTAs > out.maxCTAs)
    return fail(ncclInvalidArgument, text(what, "'s minCTAs is ", out.minCTAs,
                                          ", more than its maxCTAs, ", out.maxCTAs));
  return ncclSuccess;
}

bool has_zero(int policy) { return is_set(policy) && (policy & policy_zero) != 0; }

std::string lower(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// "ring", "ring/ll128", "/simple": of Unisono's algorithms (`unisono plan list`) and protocols.
ncclResult_t read_selection(const char* function, const char* given, bool is_forced,
                            CallOptions& options) {
  if (given == nullptr || *given == 0) return ncclSuccess;
  const std::string selection = lower(given);
  const auto slash = selection.find('/');
  options.algorithm = selection.substr(0, slash);
  if (slash == std::string::npos) return ncclSuccess;
  options.protocol = protocol_from_name(selection.substr(slash + 1));
  if (options.protocol || !is_forced) return ncclSuccess;
  return fail(ncclInvalidArgument,
              text(function, ": the configuration's algSelection is '", given, "', and '",
                   selection.substr(slash + 1),
                   "' is not a protocol; write algorithm, algorithm/protocol or /protocol, with "
                   "simple, ll or ll128"));
}

}  // namespace

ncclResult_t read_config(const ncclConfig_t* given, Config& out) {
  if (given == nullptr) return ncclSuccess;
  ncclConfig_t config;
  if (const ncclResult_t result =
          read("the configuration", "NCCL_CONFIG_INITIALIZER", *given, fields, config);
      result != ncclSuccess)
    return result;
  if (is_set(config.blocking)) out.is_blocking = config.blocking == 1;
  if (is_set(config.maxCTAs)) out.options.max_sms = config.maxCTAs;
  if (is_set(config.CTAPolicy)) {
    out.options.policy.reset();
    if (has_zero(config.CTAPolicy)) out.options.policy = Policy::zero_sm;
  }
  if (is_set(config.numRmaCtx)) out.contexts = config.numRmaCtx;
  if (is_set(config.numRmaSig)) out.signals = config.numRmaSig;
  if (out.contexts > signals_of_a_pair / out.signals)
    return fail(
        ncclInvalidArgument,
        text("the configuration's numRmaCtx is ", out.contexts, " and its numRmaSig ", out.signals,
             "; there are ", signals_of_a_pair, " signals between two ranks, in all contexts"));
  return ncclSuccess;
}

void apply(const Config& config, CallOptions& options) {
  options.limit_sms(config.options.max_sms);
  if (!options.policy) options.policy = config.options.policy;
}

ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given,
                              CallConfig& out) {
  ncclCollConfig_t config;
  if (const ncclResult_t result = read("the call's configuration", "NCCL_COLLCONFIG_INITIALIZER",
                                       given, call_fields, config);
      result != ncclSuccess)
    return result;
  out.forces_choice = !is_set(config.forceAlgSelection) || config.forceAlgSelection == 1;
  if (is_set(config.maxCTAs)) out.options.max_sms = config.maxCTAs;
  if (is_set(config.CTAPolicy))
    out.options.policy = has_zero(config.CTAPolicy) ? Policy::zero_sm : Policy::fastest;
  out.options.tag = config.userProfilerTag;
  out.event = config.launchCompletionEvent;
  return read_selection(function, config.algSelection, out.forces_choice, out.options);
}

}  // namespace unisono::nccl
