"""`unisono plan cost`: how long a plan takes on a cluster that a file describes."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from unisono import _unisono as native
from unisono.cli.formats import PlanFile
from unisono.cli.output import (
    Goal,
    Json,
    parse_size,
    print_table,
    print_text,
    put_json,
    split_names,
)
from unisono.cli.simulation import load_simulator
from unisono.cli.watch import watch
from unisono.errors import MisuseError
from unisono.exchange import read_plan
from unisono.names import type_named


def cost(
    file: PlanFile,
    cluster: Annotated[
        str, typer.Option(help="A built-in cluster's name, or a YAML file.")
    ] = "dgx_h100",
    size: Annotated[
        list[str] | None, typer.Option(help="Sizes, with a unit: 64MB, 1MiB. Default 1MiB.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes; 0: as few as hold the ranks.")] = 0,
    element: Annotated[str, typer.Option("--type", help="Of the elements.")] = "float32",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the critical path of the largest size.")
    ] = False,
    goal: Goal = None,
    json: Json = None,
) -> None:
    """Simulate a plan on a cluster: its time, and the links it uses."""
    simulator = load_simulator()
    chosen = simulator.load_cluster(cluster)
    plan, element = read_plan(file), type_named(element)
    sizes = sorted(parse_size(text, "--size") for text in split_names(size or ["1MiB"]))
    if goal is not None:
        if len(sizes) != 1:
            raise MisuseError(f"--goal writes one schedule; there are {len(sizes)} sizes")
        schedule = simulator.goal_of_plan(chosen, plan, size_bytes=sizes[0], type=element)
        simulator.write_goal(schedule, goal)
        return
    progress = simulator.Progress()
    parts = {one: progress.part(one) for one in sizes}

    def simulate(size_bytes: int) -> Any:
        with parts[size_bytes] as part:
            return simulator.simulate_plan(
                chosen, plan, size_bytes=size_bytes, nodes=nodes, type=element, explain=explain,
                progress=part.native,
            )  # fmt: skip

    results = watch(progress, lambda: [simulate(one) for one in sizes])
    document = {
        "cluster": chosen.name,
        "plan": plan.name,
        "results": [asdict(one) | {"algbw_gb_s": one.algbw_gb_s} for one in results],
    }
    if put_json(json, document, "plan-cost"):
        return
    print_table(
        ("size", "time us", "algbw GB/s", "messages", "port use", "NIC use"),
        [
            (native.format_bytes(one.size_bytes), f"{one.time_us:.2f}", f"{one.algbw_gb_s:.2f}",
             f"{one.messages:,}", f"{one.node_port_use:.0%}", f"{one.nic_use:.0%}")
            for one in results
        ],
        right=("size", "time us", "algbw GB/s", "messages", "port use", "NIC use"),
        title=f"{plan.name}, {plan.ranks} ranks on {results[-1].nodes} nodes of {chosen.name}",
    )  # fmt: skip
    if explain:
        print_text("\n" + simulator.explain_path(results[-1]))
