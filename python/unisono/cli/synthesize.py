"""`unisono plan synthesize`: plans that are found for the links of a machine."""

import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from unisono import _unisono as native
from unisono.cli.output import (
    RANK_OPTIONS,
    STANDARD_OUTPUT,
    Json,
    Output,
    parse_size,
    print_table,
    print_text,
    put_json,
    write_file,
)
from unisono.errors import MachineError, MisuseError
from unisono.extras import missing_extra
from unisono.names import check_names

if TYPE_CHECKING:
    from unisono.synthesize import Found, Point

_COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")


def synthesize(
    cluster: Annotated[
        str | None,
        typer.Option(help="A cluster or file of links, by name or as YAML: dgx_1, links.yaml."),
    ] = None,
    collective: Annotated[
        str,
        typer.Option(help="all_gather, reduce_scatter or all_reduce."),
    ] = "all_gather",
    output: Output = None,
    ranks: Annotated[
        int | None,
        typer.Option(*RANK_OPTIONS, min=1, help="Of a cluster: one node's by default."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=0, help="Of a cluster; 0: as few as possible.")] = 0,
    size: Annotated[str, typer.Option(help="Of all ranks' blocks together.")] = "64MiB",
    chunks: Annotated[
        int | None,
        typer.Option(min=1, help="Of each rank's block: 1, or at most 6 for an exact plan."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choices among equals.")] = 1,
    tries: Annotated[int, typer.Option(min=1, help="The best of so many is taken.")] = 4,
    exact: Annotated[
        bool, typer.Option("--exact", help="The Pareto set of steps and bytes; for few ranks.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --exact: no plans of more steps.")
    ] = None,
    extra_rounds: Annotated[
        int, typer.Option(min=0, help="With --exact: rounds beyond one a step, at most.")
    ] = 4,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="With --exact: for each combination that is tried.")
    ] = 60,
    in_place: Annotated[bool, typer.Option("--in-place", help="For calls in place.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List what the package has.")] = False,
    json: Json = None,
) -> None:
    """Find a plan for the links of a machine: greedily, or exactly where it is small.

    Writes the plan to --output, as JSON if the name ends in .json, else as text.
    """
    module = _module()
    if listing:
        print_table(("links", "ranks"), [
            (name, module.load_links(name).ranks) for name in module.builtin_links()
        ], right=("ranks",))  # fmt: skip
        return
    if cluster is None:
        raise MisuseError("which links? --cluster names a cluster or a file; --list shows some")
    check_names("collective that is synthesized", [collective], _COLLECTIVES)
    links = module.load_links(cluster, ranks=ranks, nodes=nodes)
    size_bytes = parse_size(size, "--size")
    if exact:
        points = list(
            module.pareto(
                links,
                collective,
                most_steps=steps,
                extra_rounds=extra_rounds,
                most_chunks=chunks or 6,
                size_bytes=size_bytes,
                seconds=seconds,
            )
        )
        _print_points(points, json)
        verified = [point.found for point in points if point.found is not None]
        if not verified:
            raise MachineError("no plan was found; --steps and --seconds allow for more")
        found = min(verified, key=lambda one: one.time_us)
    else:
        started = time.perf_counter()
        found = module.synthesize(
            links,
            collective,
            size_bytes=size_bytes,
            chunks=chunks or 1,
            seed=seed,
            tries=tries,
        )
        _print_found(found, time.perf_counter() - started, json)
    if output is None:
        return
    compiled = found.compile(in_place=in_place)
    plan = compiled.plan
    write_file(output, plan.to_json() if output.suffix == ".json" else plan.to_text())
    if json != STANDARD_OUTPUT:
        print_text(f"{plan.name}: {compiled.steps:,} steps, verified; {output}")


def _print_found(found: "Found", seconds: float, json: Path | None) -> None:
    schedule = found.schedule
    values = {
        "name": found.name,
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "chunk_bytes": found.chunk_bytes,
        "transfers": len(schedule.transfers),
        "time_us": found.time_us,
        "bound_us": found.bound_us,
        "found_in_seconds": seconds,
    }
    if put_json(json, values, "plan-synthesize"):
        return
    over = f", {found.time_us / found.bound_us - 1:.1%} above it" if found.bound_us else ""
    print_text(
        f"{found.name}, {schedule.ranks} ranks: {len(schedule.transfers):,} transfers of "
        f"{native.format_bytes(found.chunk_bytes)} in {found.time_us:.1f} us; none can be shorter "
        f"than {found.bound_us:.1f} us{over}. Found in {seconds:.3f} s."
    )


def _print_points(points: list["Point"], json: Path | None) -> None:
    rows = [
        {
            "steps": point.steps,
            "rounds": point.rounds,
            "chunks": point.chunks,
            "cost": str(point.cost),
            "time_us": point.found.time_us if point.found else None,
        }
        for point in points
    ]
    if put_json(json, {"points": rows}, "plan-synthesize-exact"):
        return
    columns = ("steps", "rounds", "chunks", "rounds a chunk", "time us")
    print_table(
        columns,
        [
            (
                row["steps"],
                row["rounds"],
                row["chunks"],
                row["cost"],
                "not decided in time" if row["time_us"] is None else f"{row['time_us']:.1f}",
            )
            for row in rows
        ],
        right=columns,
    )


def _module() -> ModuleType:
    try:
        from unisono import synthesize as module
    except ImportError as missing:
        raise missing_extra("plan synthesize", str(missing.name), "synthesize") from None
    return module
