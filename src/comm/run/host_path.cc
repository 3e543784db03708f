#include "comm/run/host_path.h"

#include "base/call_options.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/relocation.h"

namespace unisono::comm {
namespace {

// Keeps the links between nodes busy 128 / (128 + s - 1) of the time in a chain of s steps.
constexpr engine::Tiling tiling_between_nodes{.tiles = 128};

// Who comes last in a chain or a tree waits for a first tile from each rank above. Tiles of 4 KiB
// double the time of calls that follow each other (32 KiB on 4 ranks: 5.7 and 11.5 us). Ranks that
// share a core wait for turns, not for tiles: with tiles of 16 KiB 4 ranks on 2 cores took 43 us
// instead of 35 for 128 KiB.
constexpr engine::Tiling tiling_of_chains{
    .tiles = tiling_inside_node.tiles,
    .least_bytes = static_cast<std::size_t>(algorithm::Cost::least_tile_bytes)};

engine::Tiling tiling_of(int nodes, bool is_oversubscribed, const plan::Header& header) {
  if (nodes > 1) return tiling_between_nodes;
  const bool has_chain =
      !is_oversubscribed && header.ranks > 2 &&
      (header.collective == Collective::broadcast || header.collective == Collective::reduce);
  return has_chain ? tiling_of_chains : tiling_inside_node;
}

}  // namespace

HostPath::HostPath(const std::shared_ptr<Job>& job, const Identity& identity,
                   const std::vector<int>& world_ranks, int nodes)
    : job_(job),
      nodes_(nodes),
      connections_(job, identity.communicator, identity.epoch, identity.rank, world_ranks),
      messages_(connections_, identity.rank, static_cast<int>(world_ranks.size()),
                job->fifo_options()) {}

Result<std::unique_ptr<HostPath>> HostPath::make(const std::shared_ptr<Job>& job,
                                                 const Identity& identity,
                                                 const std::vector<int>& world_ranks,
                                                 topo::Placement placement) {
  std::unique_ptr<HostPath> path(new HostPath(job, identity, world_ranks, placement.nodes()));
  UNISONO_ASSIGN(Selection selection, path->make_selection(std::move(placement), path->model()));
  // Only the whole job's communicator warns, once: groups often have other numbers of ranks.
  if (const bool is_world = static_cast<int>(world_ranks.size()) == job->size();
      is_world && identity.rank == 0 && !selection.file_note().empty())
    log(LogLevel::warn, selection.file_note());
  path->plans_ = std::make_unique<Plans>(
      std::move(selection), Place::host, identity.rank, engine::limits().operations,
      path->usable_slots(),
      [path = path.get()](const Plans::Program& made) { return path->make_relocated(made); });
  return path;
}

Result<Plans*> HostPath::plans_for(Collective, CallOptions& options) const {
  fill_in(options, job_->call_defaults());
  options.max_sms = 0;
  return plans_.get();
}

Result<std::unique_ptr<engine::Execution>> HostPath::make_execution(const Plans::Program& made,
                                                                    engine::Resources& resources) {
  return engine::make_execution(
      made.header, made.program, resources, job_->fifo_options(),
      tiling_of(nodes_, job_->host_traits().oversubscription > 1, made.header), made.partners);
}

Result<std::unique_ptr<engine::Execution>> HostPath::make_relocated(const Plans::Program& made) {
  UNISONO_ASSIGN(auto execution, make_execution(made, connections_));
  return engine::relocate(std::move(execution),
                          engine::Relocation::of(made.header, made.program.rank, made.in_place));
}

Result<Selection> HostPath::make_selection(topo::Placement placement,
                                           std::shared_ptr<const EngineModel> model) const {
  Selection selection(std::move(placement), std::move(model));
  UNISONO_TRY(selection.read_settings(job_->settings()));
  return selection;
}

void HostPath::report(MemoryReport& report) const {
  connections_.report(report);
  report.plans_bytes += plans_->memory_bytes();
}

}  // namespace unisono::comm
