"""`unisono simulate`: how long collectives take on a cluster that is described in a file."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from unisono import _unisono as native
from unisono import plans
from unisono.bench.peers import OURS
from unisono.cli.nccl import NCCL, check_nccl, is_machine, simulate_nccl
from unisono.cli.output import (
    DEFAULT_RANKS,
    RANK_OPTIONS,
    Goal,
    Html,
    Json,
    check_output,
    complete_algorithm,
    complete_collective,
    complete_protocol,
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
    print_use,
)
from unisono.cli.watch import watch
from unisono.cli.workload import simulate_workload_file
from unisono.errors import MisuseError
from unisono.names import check_names, collectives
from unisono.report.sweeps import report_of_sweep

_SHOWN_HOPS = 12
_NAMING = ("algorithm", "protocol", "ranks", "nodes", "size")
_FIGURES = ("time\nus", "busbw\nGB/s", "closed\nform us", "port\nuse", "NIC\nuse", "messages")


def simulate(
    collective: Annotated[
        str, typer.Argument(help="A collective.", autocompletion=complete_collective)
    ] = "",
    cluster: Annotated[
        str, typer.Option(help="A built-in cluster's name, or a YAML file.")
    ] = "dgx_h100",
    ranks: Annotated[str, typer.Option(*RANK_OPTIONS, help="As 8, 2..64 or 8,16,2048.")] = str(
        DEFAULT_RANKS
    ),
    nodes: Annotated[int, typer.Option(min=0, help="Nodes; 0: as few as hold the ranks.")] = 0,
    size: Annotated[
        list[str] | None, typer.Option(help="Sizes, with a unit: 64MB, 1MiB. Default 1MiB.")
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="Names, or all (the default).", autocompletion=complete_algorithm),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="simple, ll, ll128 or all.", autocompletion=complete_protocol),
    ] = None,
    channels: Annotated[int, typer.Option(min=0, help="0: as the cluster's file says.")] = 0,
    model: Annotated[
        str,
        typer.Option(
            help="loggops: ports take turns. flows: links are shared, max-min fairly. alpha_beta: "
            "nothing is shared."
        ),
    ] = "loggops",
    noise: Annotated[float, typer.Option(min=0, help="Latencies grow by up to this part.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise.")] = 1,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the fastest's critical path.")
    ] = False,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Simulate what a bench measured, and show the errors. Repeatable."),
    ] = None,
    implementation: Annotated[
        str,
        typer.Option(
            help="Whose measurements: unisono, nccl, openmpi ... nccl without --against: what "
            "NCCL chooses and takes on a machine (dgx_h100, ..., or a file of format 2)."
        ),
    ] = OURS,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="With --against: algorithms to leave out, as one_shot."),
    ] = None,
    use: Annotated[
        bool, typer.Option("--use", help="Show what the fastest sends over each port and link.")
    ] = False,
    html: Html = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            callback=check_output,
            help="Write a time-line for Perfetto; with one algorithm, size and number.",
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a collective: a workload's YAML, a GOAL file (.goal, .bin), or a "
            "folder of Chakra traces, Flight Recorder dumps or our records, one file a rank."
        ),
    ] = None,
    loggops: Annotated[
        str,
        typer.Option(help="A GOAL file's costs: L=3.7us,o=200ns,g=5ns,G=0.04ns/B,O=0ns/B,S=64KiB."),
    ] = "",
    goal: Goal = None,
    clusters: Annotated[
        bool, typer.Option("--clusters", help="List the built-in clusters.")
    ] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="List the cluster's numbers and their sources.")
    ] = False,
    json: Json = None,
) -> None:
    """Simulate collectives or workloads on a cluster.

    The plans are those that the library runs.
    """
    simulator = load_simulator()
    if clusters:
        _print_clusters(simulator.builtin_clusters(), json)
        return
    if implementation == NCCL and not against:
        simulate_nccl(collective, cluster, ranks, nodes, split_names(size or ["1MiB"]), json)
        return
    if against and implementation == NCCL and is_machine(cluster, collective):
        check_nccl(cluster, against, collective, json)
        return
    chosen = simulator.load_cluster(cluster)
    if sources:
        columns = ("number", "value", "source")
        print_table(columns, chosen.numbers(), right=("value",), prose=("source",))
        return
    check_names("model", [model], NETWORK_MODELS)
    if against:
        check_against(
            chosen, against, implementation, collective, skip=split_names(skip or []), model=model,
            html=html, json=json,
        )  # fmt: skip
        return
    if workload is not None:
        options = {
            "model": model, "noise": noise, "seed": seed, "explain": explain,
            "timeline": str(timeline or ""),
        }  # fmt: skip
        simulate_workload_file(
            simulator, workload, cluster, options, log_gops=loggops, export=goal, html=html,
            json=json,
        )  # fmt: skip
        return
    check_names("collective", [collective], collectives())
    sizes = [parse_size(text, "--size") for text in split_names(size or ["1MiB"])]
    algorithms = _algorithms(collective, split_names(algorithm or ["all"]))
    protocols = split_names(protocol or ["simple"])
    if protocols == ["all"]:
        protocols = native.protocols()
    check_names("protocol", protocols, native.protocols())
    jobs = [
        simulator.Job(one, proto, count, bytes)
        for count in parse_rank_list(ranks)
        for bytes in sizes  # noqa: A001
        for one in algorithms
        for proto in protocols
    ]
    if timeline is not None and len(jobs) != 1:
        raise MisuseError("--timeline shows one simulation: name one algorithm, protocol and size")
    if goal is not None:
        if len(jobs) != 1:
            raise MisuseError("--goal writes one schedule: name one algorithm, protocol and size")
        job = jobs[0]
        schedule = simulator.goal_of_collective(
            chosen, collective, job.algorithm, size_bytes=job.size_bytes, ranks=job.ranks,
            nodes=nodes, protocol=job.protocol, channels=channels,
        )  # fmt: skip
        simulator.write_goal(schedule, goal)
        return
    options = {
        "nodes": nodes, "channels": channels, "model": model, "noise": noise, "seed": seed,
        # A page shows the critical path, whether asked for it or not.
        "explain": explain or html is not None, "timeline": str(timeline or ""),
    }  # fmt: skip
    progress = simulator.Progress()
    results, refused = watch(
        progress,
        lambda: simulator.simulate_all(chosen, collective, jobs, options, progress=progress),
    )
    if not results:
        raise MisuseError(refused[0][1])
    if html is not None:
        write_file(html, report_of_sweep(chosen, model, collective, results, refused))
    if not explain:
        results = [replace(one, shares={}, hops=[]) for one in results]
    document = {
        "cluster": chosen.name,
        "model": model,
        "results": [
            asdict(one) | {"algbw_gb_s": one.algbw_gb_s, "busbw_gb_s": one.busbw_gb_s}
            for one in results
        ],
        "refused": [{"algorithm": job.algorithm, "why": why} for job, why in refused],
    }
    if put_json(json, document):
        return
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
    if explain:
        print_text("\n" + simulator.explain_path(results[0], _SHOWN_HOPS))
    if use:
        print_text("")
        print_use(results[0].links)


def _algorithms(collective: str, names: list[str]) -> list[str]:
    known = [entry.name for entry in plans.algorithms(collective)]
    if names == ["all"]:
        return known
    check_names("algorithm", names, known)
    return names


def _print_clusters(names: list[str], json: Path | None) -> None:
    simulator = load_simulator()
    loaded = [simulator.load_cluster(name) for name in names]
    if put_json(json, [{"name": one.name, "description": one.file.description} for one in loaded]):
        return
    print_table(
        ("cluster", "what it is", "ranks"),
        [(one.name, one.file.description, f"{one.machine.max_ranks:,}") for one in loaded],
        right=("ranks",),
        prose=("what it is",),
    )
