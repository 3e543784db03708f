"""`unisono place`: which parallel groups of a model stay in a node, a rack, a zone."""

from dataclasses import asdict
from typing import Annotated

import typer

from unisono import levels
from unisono.cli.output import (
    CLUSTER_LEVELS,
    DEFAULT_RANKS,
    Json,
    Nodes,
    Ranks,
    placement_of,
    print_table,
    print_text,
    put_json,
)


def place(
    groups: Annotated[
        str, typer.Argument(help="The nearest first, with their sizes: tensor=8,expert=4.")
    ],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    cluster: Annotated[str, CLUSTER_LEVELS] = "",
    json: Json = None,
) -> None:
    """Say which parallel groups of a model stay in a node, a rack, a zone.

    Consecutive ranks form the groups that are named first, which should be those that send most:
    tensor parallelism, then experts, then pipeline stages. Ranks that are left over are the last
    group, data. For a group that is split badly it says which size would fit.
    """
    placement = placement_of(ranks, nodes)
    if cluster:
        placement = placement.with_spans(levels.spans_of_cluster(cluster))
    placed = levels.place_groups(placement, levels.parse_groups(groups))
    units = ["node", *placement.levels, "cluster"]
    document = {
        "ranks": ranks, "nodes": nodes, "units": units, "groups": [asdict(one) for one in placed],
    }  # fmt: skip
    if put_json(json, document):
        return
    print_table(
        ("group", "ranks", "stride", "groups", "stays in"),
        [(one.name, one.size, one.stride, one.groups, one.where) for one in placed],
        right=("ranks", "stride", "groups"),
    )
    for one in placed:
        if one.advice:
            print_text(one.advice)
