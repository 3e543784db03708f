"""`unisono explain`: which plan a call would take, and why."""

from typing import Annotated

import typer

from unisono import plans
from unisono.cli.output import (
    DEFAULT_RANKS,
    Json,
    Nodes,
    Ranks,
    complete_collective,
    parse_size,
    placement_of,
    print_text,
    put_json,
)
from unisono.names import check_names, collectives

_OF_CANDIDATES = (
    *("algorithm", "protocol", "channels", "time_us", "steps", "steps_inter_node"),
    *("bytes_sent", "bytes_sent_inter_node"),
)


def explain(
    collective: Annotated[
        str, typer.Argument(help="For example all_reduce.", autocompletion=complete_collective)
    ],
    size: Annotated[str, typer.Argument(help="Bytes: 8, 64KiB, 1MiB.")],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    json: Json = None,
) -> None:
    """Say which plan a call would take, and why.

    The size is that of a rank's input or output, whichever is larger.
    """
    check_names("collective", [collective], collectives())
    size_bytes, placement = parse_size(size, "SIZE"), placement_of(ranks, nodes)
    found = plans.explain(collective, size_bytes, placement)
    document = {
        "collective": collective,
        "bytes": size_bytes,
        "ranks": ranks,
        "nodes": nodes,
        "chosen": {
            "algorithm": found.algorithm,
            "protocol": found.protocol,
            "channels": found.channels,
            "min_bytes": found.min_bytes,
            "max_bytes": found.max_bytes,
            "origin": found.origin,
        },
        "candidates": [
            {name: getattr(one, name) for name in _OF_CANDIDATES} for one in found.candidates
        ],
    }
    if not put_json(json, document):
        print_text(str(found))
