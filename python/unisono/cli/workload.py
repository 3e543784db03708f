"""`unisono simulate --workload`: applications, traces and GOAL files."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from unisono import _unisono as native
from unisono.cli.models import NCCL, NOT_OF_NCCLS_WORKLOADS, is_machine, refuse_options
from unisono.cli.output import print_table, print_text, put_json, write_file
from unisono.cli.simulation import print_unseen
from unisono.cli.watch import watch
from unisono.errors import MisuseError
from unisono.report.workloads import report_of_workload

_SHOWN_TASKS = 40
# The event simulator alone has these.
_ONLY_EVENTS = ("noise", "explain", "timeline")
# A GOAL file is simulated with these, as by LogGOPSim.
_PLAIN = {"model": "loggops", "noise": 0.0, "explain": False, "timeline": ""}


def simulate_workload_file(
    simulator: ModuleType,
    path: Path,
    cluster: str,
    options: dict[str, Any],
    *,
    log_gops: str = "",
    export: Path | None = None,
    html: Path | None = None,
    json: Path | None = None,
    chose_model: bool = False,
) -> None:
    """Simulates what a file or a folder of traces holds, or only writes it as GOAL.

    A GOAL file runs as in LogGOPSim, unless something is asked for that workloads alone have.
    Traces of NCCL run on its model where it knows the cluster and has all that is asked for;
    `chose_model` says that a model of the event simulator was named.
    """
    if path.suffix in simulator.GOAL_SUFFIXES:
        schedule = simulator.read_goal(path)
        if export is not None:
            simulator.write_goal(schedule, export)
            return
        plain = html is None and options == _PLAIN | {"seed": options["seed"]}
        if log_gops and not plain:
            raise MisuseError(
                "--loggops runs a GOAL file as LogGOPSim does; --model, --noise, --explain, "
                "--timeline and --html take a --cluster"
            )
        if log_gops:
            _show_goal(_run_goal(simulator, schedule, simulator.parse_log_gops(log_gops)), json)
            return
        chosen = simulator.load_cluster(cluster)
        if plain:
            nodes = -(-schedule.ranks // chosen.machine.ranks_per_node)
            unseen = chosen.unseen_uplinks("loggops", nodes)
            _show_goal(_run_goal(simulator, schedule, chosen), json, unseen)
            return
        work = partial(simulator.simulate_goal, chosen, schedule, path.stem)
    else:
        if log_gops:
            raise MisuseError("--loggops is for GOAL files; other workloads take a --cluster")
        workload = simulator.load_workload(path)
        if workload.implementation == NCCL:
            given = {"goal": export} | options
            wanted = {name: value for name, value in given.items() if name not in ("model", "seed")}
            if options["model"] != _PLAIN["model"]:
                wanted["model"] = options["model"]
            refuse_options(f"implementation: {NCCL} in {path}", NOT_OF_NCCLS_WORKLOADS, wanted)
            simulate_nccl_workload(workload, cluster, html, json)
            return
        only_events = chose_model or export or any(options[name] for name in _ONLY_EVENTS)
        if not only_events and is_machine(cluster) and simulator.can_run_on_nccl(workload):
            simulate_nccl_workload(workload, cluster, html, json)
            return
        chosen = simulator.load_cluster(cluster)
        if export is not None:
            simulator.write_goal(simulator.goal_of_workload(chosen, workload), export)
            return
        work = partial(simulator.simulate_workload, chosen, workload)
    progress = simulator.Progress()
    part = progress.part()
    # A page shows the critical path, whether asked for it or not.
    wanted = options | {"explain": options["explain"] or html is not None}
    result = watch(progress, partial(work, progress=part.native, **wanted))
    if html is not None:
        unseen = chosen.unseen_uplinks(options["model"], result.nodes)
        about = f"{chosen.file.description} {unseen}"
        write_file(html, report_of_workload(chosen.name, about, options["model"], result))
    if not options["explain"]:
        result = replace(result, shares={}, hops=[])
    document = {
        "cluster": chosen.name,
        "model": options["model"],
        "unseen": chosen.unseen_uplinks(options["model"], result.nodes),
    } | asdict(result)
    if put_json(json, document, "simulate-workload"):
        return
    _show(result)
    print_unseen(chosen, options["model"], result.nodes)
    if options["explain"]:
        print_text("\n" + simulator.explain_workload(result))


def simulate_nccl_workload(
    workload: Any, cluster: str, html: Path | None, json: Path | None
) -> None:
    """Runs a workload on NCCL's model.

    Args:
        workload: What runs.
        cluster: A machine of NCCL's model.
        html: Where a page goes, if anywhere.
        json: Where to; None: tables.

    Raises:
        MisuseError: There is no such machine, or it cannot run the workload.
    """
    from unisono.simulate import nccl, simulate_workload_nccl

    machine = nccl.find_machine(cluster)
    result = simulate_workload_nccl(machine, workload)
    if html is not None:
        write_file(html, report_of_workload(machine.name, machine.description, "NCCL", result))
    document = {"cluster": machine.name, "model": NCCL, "unseen": ""} | asdict(result)
    if put_json(json, document, "simulate-workload"):
        return
    _show(result)


def _run_goal(simulator: ModuleType, schedule: native.GoalSchedule, where: Any) -> Any:
    progress = simulator.Progress()
    part = progress.part()
    return watch(progress, lambda: simulator.run_goal(schedule, where, progress=part.native))


def _show_goal(result: native.GoalResult, json: Path | None, unseen: str = "") -> None:
    document = {
        "unseen": unseen,
        "time_us": result.time_us,
        "last_rank": result.last_rank,
        "operations": result.operations,
        "messages": result.messages,
        "bytes": result.bytes,
        "ranks_us": result.ranks_us,
    }
    if put_json(json, document, "simulate-goal"):
        return
    print_text(
        f"{result.time_us:,.3f} us until rank {result.last_rank} has ended; "
        f"{result.operations:,} operations, {result.messages:,} messages, {result.bytes:,} bytes"
    )
    if unseen:
        print_text(f"\n{unseen}")


def _show(result: Any) -> None:
    share = result.exposed_us / result.time_us if result.time_us > 0 else 0.0
    print_text(
        f"{result.name}: {result.ranks} ranks on {result.nodes} nodes, {result.time_us:,.2f} us"
        + (
            f", the last of {len(result.iterations_us)} iterations {result.last_iteration_us:,.2f}"
            if len(result.iterations_us) > 1
            else ""
        )
    )
    if result.high_us > 0:
        print_text(f"from {result.low_us:,.2f} to {result.high_us:,.2f} us by NCCL's intervals")
    if result.tokens_per_s > 0:
        mfu = f", MFU {result.mfu:.1%}" if result.mfu > 0 else ""
        print_text(f"{result.tokens_per_s:,.0f} tokens a second{mfu}")
    print_text(
        f"rank 0 computes for {result.compute_us:,.2f} us, communicates for "
        f"{result.communication_us:,.2f}, of which {result.exposed_us:,.2f} ({share:.1%}) without "
        "computing"
    )
    print_table(
        ("communicator", "collective", "size", "algorithm"),
        [
            (over, collective, native.format_bytes(size), algorithm)
            for over, collective, size, algorithm in result.algorithms
        ],
        right=("size",),
    )
    tasks = result.tasks[:_SHOWN_TASKS]
    print_table(
        ("task of rank 0", "stream", "began us", "took us"),
        [
            (one.name, one.stream, f"{one.began_us:,.2f}", f"{one.ended_us - one.began_us:,.2f}")
            for one in tasks
        ],
        right=("began us", "took us"),
    )
    if len(tasks) < len(result.tasks):
        print_text(f"and {len(result.tasks) - len(tasks):,} tasks more; --timeline shows all")
