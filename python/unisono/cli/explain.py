"""`unisono explain`: which plan a call would take, and why."""

from typing import Annotated

import typer

from unisono import plans
from unisono.bench.cases import check_names, collectives
from unisono.cli.output import (
    Json,
    Nodes,
    Ranks,
    complete_collective,
    parse_size,
    placement_of,
    print_json,
    print_text,
)


def explain(
    collective: Annotated[
        str, typer.Argument(help="For example all_reduce.", autocompletion=complete_collective)
    ],
    size: Annotated[str, typer.Argument(help="Bytes: 8, 64KiB, 1MiB.")],
    ranks: Ranks = 8,
    nodes: Nodes = 1,
    json: Json = False,
) -> None:
    """Say which plan a call would take on such a communicator, and why.

    The size is that of a rank's input or output, whichever is larger.
    """
    check_names("collective", [collective], collectives())
    size_bytes, placement = parse_size(size, "SIZE"), placement_of(ranks, nodes)
    if not json:
        print_text(plans.explain(collective, size_bytes, placement))
        return
    row = plans.choose(collective, size_bytes, placement)
    print_json(
        {
            "collective": collective,
            "bytes": size_bytes,
            "ranks": ranks,
            "nodes": nodes,
            "chosen": {
                "algorithm": row.algorithm,
                "protocol": row.protocol,
                "channels": row.channels,
                "min_bytes": row.min_bytes,
                "max_bytes": row.max_bytes,
                "origin": row.origin,
            },
            "candidates": [
                {
                    "algorithm": one.algorithm,
                    "protocol": one.protocol,
                    "channels": one.channels,
                    "time_us": one.time_us,
                    "steps": one.cost.steps,
                    "steps_inter_node": one.cost.steps_inter_node,
                    "bytes_sent": one.cost.bytes_sent,
                    "bytes_sent_inter_node": one.cost.bytes_sent_inter_node,
                }
                for one in plans.candidates(collective, size_bytes, placement)
            ],
        }
    )
