"""`unisono explain`: which plan a call would take, and why."""

from typing import Annotated

import typer

from unisono import _unisono as native
from unisono import hardware, levels, plans
from unisono.cli.output import (
    CLUSTER_LEVELS,
    DEFAULT_RANKS,
    All,
    Json,
    Nodes,
    Ranks,
    parse_size,
    placement_of,
    print_text,
    put_json,
)
from unisono.names import check_names, collectives, operation_named, type_named

_SHOWN = 5  # candidates, unless all are asked for
_DEVICES = ("cpu", "cuda")
_STAGED = (
    "Calls on CUDA streams are staged through host memory: the GPUs are on several hosts. Where "
    "GPUs of a host reach each other, a plan with a phase inside hosts is mixed, and another plan "
    "may be chosen: comm.explain() says which."
)
_OF_CANDIDATES = (
    *("algorithm", "protocol", "channels", "time_us", "longer_us", "steps", "steps_inter_node"),
    *("bytes_sent", "bytes_sent_inter_node"),
)
_OF_DISTANCES = ("where", "messages", "bytes", "longer_us")


def explain(
    collective: Annotated[str, typer.Argument(help="For example all_reduce.")],
    size: Annotated[str, typer.Argument(help="Bytes: 8, 64KiB, 1MiB.")],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    cluster: Annotated[str, CLUSTER_LEVELS] = "",
    device: Annotated[str, typer.Option(help="cpu, or cuda: GPUs, staged between hosts.")] = "cpu",
    architecture: Annotated[
        str, typer.Option(help="With --device cuda: sm_90, ...; empty: the newest known.")
    ] = "",
    sms: Annotated[int, typer.Option(min=1, help="With --device cuda: SMs of each GPU.")] = 132,
    type_: Annotated[
        str, typer.Option("--type", "-d", "--datatype", help="Element type; empty: any.")
    ] = "",
    operation: Annotated[str, typer.Option("--operation", "-o", "--op", help="Reduction.")] = "sum",
    in_place: Annotated[bool, typer.Option("--in-place", help="Input and output alias.")] = False,
    max_sms: Annotated[
        int, typer.Option(min=0, help="With --device cuda: the call's limit on SMs; 0: none.")
    ] = 0,
    compute_overlap: Annotated[
        bool, typer.Option("--compute-overlap", help="With --device cuda: as PyTorch calls.")
    ] = False,
    every: All = False,
    json: Json = None,
) -> None:
    """Say which plan a call would take, and why.

    The best plans that could serve it are listed with their time by the cost model; --all lists
    every one.

    The size is that of a rank's input or output, whichever is larger. With --device cuda it also
    says which kernel; no GPU is needed. With --cluster, plans are chosen by how far messages go,
    and it says how many of the plan's messages stay in a rack, a zone and so on. PyTorch's backend
    calls with --compute-overlap, and DDP with --in-place.
    """
    type_, operation = type_named(type_), operation_named(operation)
    check_names("collective", [collective], collectives())
    check_names("device", [device], _DEVICES)
    size_bytes, placement = parse_size(size, "SIZE"), placement_of(ranks, nodes)
    if cluster:
        placement = placement.with_spans(levels.spans_of_cluster(cluster))
    staged = _STAGED if device == "cuda" and nodes > 1 else ""
    if device == "cuda" and not staged:
        found = plans.explain_device(
            *(collective, size_bytes, ranks, architecture, sms),
            type=type_, operation=operation, in_place=in_place,
            options={"max_sms": max_sms, "compute_overlap": compute_overlap},
        )  # fmt: skip
    else:
        found = plans.explain(collective, size_bytes, placement)
    transports = {
        "inside_a_node": native.usual_transport(True),
        "between_nodes": native.usual_transport(False),
    }
    # These are this host's cards, because the hosts of the call are not known.
    cards = hardware.cards() if nodes > 1 else []
    document = {
        "collective": collective,
        "bytes": size_bytes,
        "ranks": ranks,
        "nodes": nodes,
        "levels": found.levels,
        "transports": transports,
        "cards": cards,
        "chosen": {
            "algorithm": found.algorithm,
            "protocol": found.protocol,
            "channels": found.channels,
            "min_bytes": found.min_bytes,
            "max_bytes": found.max_bytes,
            "path": "staged" if staged else found.path,
            "thread_blocks": found.thread_blocks,
            "slots": found.slots,
            "chunk_bytes": found.chunk_bytes,
            "origin": found.origin,
            "note": " ".join(filter(None, (staged, found.note))),
            "distances": [
                {name: getattr(one, name) for name in _OF_DISTANCES} for one in found.distances
            ],
        },
        "candidates": [
            {name: getattr(one, name) for name in _OF_CANDIDATES} for one in found.candidates
        ],
    }
    if not put_json(json, document, "explain"):
        wires = "" if device == "cuda" and not staged else _describe(transports, nodes)
        near = "\n".join(f"Here, {one['description']}." for one in cards)
        print_text("\n".join(filter(None, (staged, _table(found, every), wires, near))))


def _table(found: plans.Explanation, every: bool) -> str:
    """The explanation, with the best candidates or all of them."""
    lines = str(found).split("\n")
    left = len(found.candidates) - _SHOWN
    if every or left <= 0:
        return "\n".join(lines)
    heading = next(i for i, line in enumerate(lines) if line.startswith("algorithm "))
    more = f"... and {left} slower ones; --all lists them"
    del lines[heading + 1 + _SHOWN : heading + 1 + len(found.candidates)]
    lines.insert(heading + 1 + _SHOWN, more)
    return "\n".join(lines)


def _describe(transports: dict[str, str], nodes: int) -> str:
    """Which transport carries the call where all ranks have everything."""
    inside = f"{transports['inside_a_node']} inside a node"
    between = f", {transports['between_nodes']} between nodes" if nodes > 1 else ""
    return f"Transport: {inside}{between}."
