"""`unisono plan list`, `show` and `draw`."""

import json as json_module
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from unisono import _unisono as native
from unisono import plans
from unisono.cli.formats import FORMAT_HELP, Format, Target, written
from unisono.cli.output import (
    DEFAULT_RANKS,
    Json,
    Nodes,
    Ranks,
    placement_of,
    print_entries,
    print_json,
    print_raw,
    progress_console,
    put_json,
    write_file,
)
from unisono.cli.pictures import PAGES, check_picture, write_picture
from unisono.draw import draw_chunks, draw_page, draw_plan, draw_traffic
from unisono.errors import MisuseError
from unisono.exchange import read_plan
from unisono.names import check_names, collectives

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A plan's name, or a file with a plan."),
]
Root = Annotated[int, typer.Option(help="Of broadcast, reduce, gather, scatter.")]
Protocol = Annotated[str, typer.Option(help="simple, ll or ll128.")]
Channels = Annotated[int, typer.Option(min=1, help="Channels.")]
InPlace = Annotated[bool, typer.Option("--in-place", help="Input and output alias.")]


def list_plans(
    collective: Annotated[
        str | None,
        typer.Argument(help="Only of this collective."),
    ] = None,
    json: Json = None,
) -> None:
    """List the built-in plans."""
    if collective is not None:
        check_names("collective", [collective], collectives())
    entries = plans.algorithms(collective or "")
    fields = ("plan_name", "name", "collective", "summary", "constraint", "source")
    document = [{field: getattr(entry, field) for field in fields} for entry in entries]
    if not put_json(json, {"plans": document}, "plan-list"):
        print_entries(
            (entry.plan_name, (entry.summary, f"{entry.constraint}; {entry.source}"))
            for entry in entries
        )


def show(
    name: Name,
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    rank: Annotated[int | None, typer.Option(help="Only this rank's program.")] = None,
    root: Root = 0,
    protocol: Protocol = "simple",
    channels: Channels = 1,
    in_place: InPlace = False,
    form: Annotated[Format, typer.Option("--format", help=FORMAT_HELP)] = Format.text,
    target: Target = None,
) -> None:
    """Show a plan as text or JSON, or in a third-party format."""
    plan = find_plan(name, ranks, nodes, root, protocol, channels, in_place)
    if rank is not None and not 0 <= rank < plan.ranks:
        raise MisuseError(f"rank is {rank}; {plan.name} has ranks 0 to {plan.ranks - 1}")
    if rank is not None and form not in (Format.text, Format.json):
        raise MisuseError(f"--rank shows part of a plan, and a file in {form} holds all of it")
    if rank is None or form is Format.text:
        print_raw(plan.to_text(rank) if rank is not None else written(plan, form, target))
        return
    document = json_module.loads(plan.to_json())
    document["programs"] = [one for one in document["programs"] if one["rank"] == rank]
    print_json(document)


class View(StrEnum):
    """What a picture of a plan shows."""

    space_time = "space-time"
    chunk = "chunk"
    traffic = "traffic"


def draw(
    name: Name,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            callback=check_picture,
            help="The picture, .svg, .png or .pdf, or an interactive page: .html.",
        ),
    ],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    root: Root = 0,
    protocol: Protocol = "simple",
    channels: Channels = 1,
    in_place: InPlace = False,
    view: Annotated[
        View, typer.Option(help="Of a picture: space-time, chunk or traffic. A page has all.")
    ] = View.space_time,
    chunk: Annotated[int, typer.Option(min=0, help="With --view chunk: which one.")] = 0,
) -> None:
    """Draw a plan: space and time, the way of a chunk, or what ranks send to each other."""
    plan = find_plan(name, ranks, nodes, root, protocol, channels, in_place)
    placement = placement_of(ranks, nodes)
    node_of_rank = None
    if nodes > 1 and plan.ranks == ranks:
        node_of_rank = [placement.node_of(rank) for rank in range(ranks)]
    if output.suffix in PAGES:
        write_file(output, _page_of(plan, node_of_rank))
    elif view is View.chunk:
        write_picture(output, draw_chunks(plan, chunk))
    elif view is View.traffic:
        write_picture(output, draw_traffic(plan))
    else:
        write_picture(output, draw_plan(plan, node_of_rank))


def _page_of(plan: plans.Plan, node_of_rank: Sequence[int] | None) -> str:
    """The page, with a bar on a terminal while it is made."""
    bar = Progress(
        TextColumn("drawing"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=progress_console(),
        transient=True,
        disable=not progress_console().is_terminal,
    )
    with bar:
        task = bar.add_task("drawing", total=None)
        shown = 0.0

        def advance(done: int, total: int) -> None:
            # A bar is cheap to look at and dear to set: a thousand times at most.
            nonlocal shown
            if done == total or done >= shown + total / 1000:
                shown = done
                bar.update(task, completed=done, total=total)

        return draw_page(plan, node_of_rank, advance)


def find_plan(
    name: str, ranks: int, nodes: int, root: int, protocol: str, channels: int, in_place: bool
) -> plans.Plan:
    """The built-in plan of a name, or the plan in a file.

    Raises:
        MisuseError: No such plan (the text has the near names), it cannot serve, or the file holds
            none.
    """
    check_names("protocol", [protocol], native.protocols())
    path = Path(name)
    if path.suffix or "/" in name:
        return read_plan(path)
    return plans.find_algorithm(name).plan(
        placement_of(ranks, nodes),
        root=root,
        in_place=in_place,
        protocol=protocol,
        channels=channels,
    )
