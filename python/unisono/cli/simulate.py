"""`unisono simulate`: how long collectives take on a cluster that is described in a file."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unisono import _unisono as native
from unisono import plans
from unisono.bench.peers import OURS
from unisono.cli import simulate_options as options
from unisono.cli.models import (
    NCCL,
    NOT_OF_NCCL,
    NOT_OF_NCCLS_WORKLOADS,
    NOT_WITH_MEASUREMENTS,
    refuse_options,
    takes_nccls_model,
)
from unisono.cli.nccl import check_nccl, simulate_nccl
from unisono.cli.output import (
    DEFAULT_RANKS,
    Goal,
    Html,
    Json,
    parse_rank_list,
    parse_size,
    print_table,
    print_text,
    put_json,
    split_names,
    write_file,
)
from unisono.cli.simulation import (
    NETWORK_MODELS,
    check_against,
    load_simulator,
    print_unseen,
    print_use,
)
from unisono.cli.watch import watch
from unisono.cli.workload import simulate_nccl_workload, simulate_workload_file
from unisono.errors import MisuseError
from unisono.names import check_names, collectives
from unisono.report.sweeps import report_of_sweep

if TYPE_CHECKING:
    from unisono.simulate import Cluster, Job, Simulated

_SHOWN_HOPS = 12
_NAMING = ("algorithm", "protocol", "ranks", "nodes", "size")
_FIGURES = ("time\nus", "busbw\nGB/s", "closed\nform us", "port\nuse", "NIC\nuse", "messages")


def simulate(
    collective: options.Collective = "",
    cluster: options.Cluster = "dgx_h100",
    ranks: options.Ranks = str(DEFAULT_RANKS),
    nodes: options.Nodes = 0,
    size: options.Size = None,
    algorithm: options.Algorithm = None,
    protocol: options.Protocol = None,
    channels: options.Channels = 0,
    model: options.Model = None,
    noise: options.Noise = 0.0,
    seed: options.Seed = 1,
    explain: options.Explain = False,
    against: options.Against = None,
    implementation: options.Implementation = OURS,
    skip: options.Skip = None,
    use: options.Use = False,
    html: Html = None,
    timeline: options.Timeline = None,
    workload: options.Workload = None,
    loggops: options.Loggops = "",
    goal: Goal = None,
    clusters: options.Clusters = False,
    sources: options.Sources = False,
    json: Json = None,
) -> None:
    """Simulate collectives or workloads on a cluster.

    The plans are those that the library runs.
    """
    given = dict(locals())
    simulator = load_simulator()
    if clusters:
        _print_clusters(simulator.builtin_clusters(), json)
        return
    if _is_answered_by_nccls_model(given):
        return
    model = model or "loggops"
    check_names("model", [model], NETWORK_MODELS)
    how = {
        "model": model, "noise": noise, "seed": seed, "explain": explain,
        "timeline": str(timeline or ""),
    }  # fmt: skip
    if workload is not None and not against and not sources:
        simulate_workload_file(
            simulator, workload, cluster, how, log_gops=loggops, export=goal, html=html, json=json,
            chose_model=given["model"] is not None,
        )  # fmt: skip
        return
    chosen = simulator.load_cluster(cluster)
    if sources:
        _print_sources(chosen)
        return
    if against:
        check_against(
            chosen, against, implementation, collective, skip=split_names(skip or []), model=model,
            html=html, json=json,
        )  # fmt: skip
        return
    jobs = _jobs(simulator, collective, ranks, size, algorithm, protocol)
    if timeline is not None and len(jobs) != 1:
        raise MisuseError("--timeline shows one simulation: name one algorithm, protocol and size")
    if goal is not None:
        _write_goal(simulator, chosen, collective, jobs, nodes, channels, goal)
        return
    # A page shows the critical path, whether asked for it or not.
    how |= {"nodes": nodes, "channels": channels, "explain": explain or html is not None}
    progress = simulator.Progress()
    results, refused = watch(
        progress, lambda: simulator.simulate_all(chosen, collective, jobs, how, progress=progress)
    )
    if not results:
        raise MisuseError(refused[0][1])
    if html is not None:
        write_file(html, report_of_sweep(chosen, model, collective, results, refused))
    if not explain:
        results = [replace(one, shares={}, hops=[]) for one in results]
    if put_json(json, _document(chosen, model, results, refused), "simulate"):
        return
    _print_results(results, refused)
    print_unseen(chosen, model, max(one.nodes for one in results))
    if explain:
        print_text("\n" + simulator.explain_path(results[0], _SHOWN_HOPS))
    if use:
        print_text("")
        print_use(results[0].links)


def _is_answered_by_nccls_model(given: dict[str, Any]) -> bool:
    """Whether NCCL's model was meant and has answered.

    Args:
        given: The values of all parameters of `simulate`.

    Raises:
        MisuseError: Options do not go together.
    """
    implementation, against, json = given["implementation"], given["against"], given["json"]
    cluster, collective = given["cluster"], given["collective"]
    if against:
        refuse_options("--against", NOT_WITH_MEASUREMENTS, given)
        only_events = {"--model": given["model"], "--skip": given["skip"]}
        if not takes_nccls_model(cluster, implementation, against, only_events):
            return False
        check_nccl(cluster, against, collective, given["html"], json)
        return True
    if implementation not in (OURS, NCCL):
        raise MisuseError(
            f"--implementation {implementation} says whose measurements --against takes; without "
            f"--against there are {OURS} and {NCCL}"
        )
    if implementation == NCCL and given["workload"] is not None:
        refuse_options(f"--workload and --implementation {NCCL}", NOT_OF_NCCLS_WORKLOADS, given)
        simulator = load_simulator()
        workload = simulator.load_workload(given["workload"])
        simulate_nccl_workload(workload, cluster, given["html"], json)
    elif implementation == NCCL:
        refuse_options("--implementation nccl", NOT_OF_NCCL, given)
        simulate_nccl(
            collective, cluster, given["ranks"], given["nodes"],
            split_names(given["size"] or ["1MiB"]), given["html"], json,
            algorithms=split_names(given["algorithm"] or []),
            protocols=split_names(given["protocol"] or []), explain=given["explain"],
        )  # fmt: skip
    return bool(implementation == NCCL)


def _jobs(
    simulator: ModuleType,
    collective: str,
    ranks: str,
    size: list[str] | None,
    algorithm: list[str] | None,
    protocol: list[str] | None,
) -> "list[Job]":
    """Every algorithm that is asked for, with every number of ranks, size and protocol."""
    check_names("collective", [collective], collectives())
    sizes = [parse_size(text, "--size") for text in split_names(size or ["1MiB"])]
    algorithms = _algorithms(collective, split_names(algorithm or ["all"]))
    protocols = split_names(protocol or ["simple"])
    if protocols == ["all"]:
        protocols = native.protocols()
    check_names("protocol", protocols, native.protocols())
    return [
        simulator.Job(one, proto, count, size_bytes)
        for count in parse_rank_list(ranks)
        for size_bytes in sizes
        for one in algorithms
        for proto in protocols
    ]


def _algorithms(collective: str, names: list[str]) -> list[str]:
    known = [entry.name for entry in plans.algorithms(collective)]
    if names == ["all"]:
        return known
    check_names("algorithm", names, known)
    return names


def _write_goal(
    simulator: ModuleType,
    cluster: "Cluster",
    collective: str,
    jobs: "Sequence[Job]",
    nodes: int,
    channels: int,
    path: Path,
) -> None:
    """Writes the schedule of the one job."""
    if len(jobs) != 1:
        raise MisuseError("--goal writes one schedule: name one algorithm, protocol and size")
    job = jobs[0]
    schedule = simulator.goal_of_collective(
        cluster, collective, job.algorithm, size_bytes=job.size_bytes, ranks=job.ranks,
        nodes=nodes, protocol=job.protocol, channels=channels,
    )  # fmt: skip
    simulator.write_goal(schedule, path)


def _document(
    cluster: "Cluster",
    model: str,
    results: "Sequence[Simulated]",
    refused: "Sequence[tuple[Job, str]]",
) -> dict[str, Any]:
    """What --json writes."""
    return {
        "cluster": cluster.name,
        "model": model,
        "unseen": cluster.unseen_uplinks(model, max(one.nodes for one in results)),
        "results": [
            asdict(one) | {"algbw_gb_s": one.algbw_gb_s, "busbw_gb_s": one.busbw_gb_s}
            for one in results
        ],
        "refused": [{"algorithm": job.algorithm, "why": why} for job, why in refused],
    }


def _print_results(results: "Sequence[Simulated]", refused: "Sequence[tuple[Job, str]]") -> None:
    """The table, and why it lacks what was refused."""
    print_table(
        (*_NAMING, *_FIGURES),
        [
            (one.algorithm, one.protocol, one.ranks, one.nodes,
             native.format_bytes(one.size_bytes), f"{one.time_us:.2f}", f"{one.busbw_gb_s:.2f}",
             f"{one.closed_form_us:.2f}", f"{one.node_port_use:.0%}", f"{one.nic_use:.0%}",
             f"{one.messages:,}")
            for one in results
        ],
        right=(*_NAMING[2:], *_FIGURES),
        folds=_NAMING,
        keys=len(_NAMING),
    )  # fmt: skip
    for job, why in refused:
        print_text(f"{job.algorithm} with {job.ranks} ranks: {why}")


def _print_sources(cluster: "Cluster") -> None:
    columns = ("number", "value", "source")
    print_table(columns, cluster.numbers(), right=("value",), prose=("source",))


def _print_clusters(names: list[str], json: Path | None) -> None:
    simulator = load_simulator()
    loaded = [simulator.load_cluster(name) for name in names]
    listed = [{"name": one.name, "description": one.file.description} for one in loaded]
    if put_json(json, {"clusters": listed}, "clusters"):
        return
    print_table(
        ("cluster", "what it is", "ranks"),
        [(one.name, one.file.description, f"{one.machine.max_ranks:,}") for one in loaded],
        right=("ranks",),
        prose=("what it is",),
    )
