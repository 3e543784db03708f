"""Programs and plans for a communicator: what `Communicator.register` hands over."""

import contextlib
from collections.abc import Sequence
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.lang.program import Program

__all__ = ["plans_for", "register", "shape_of"]


def register(
    communicator: native.Communicator,
    program: Program | native.Plan,
    sizes: tuple[int, int | None],
    nodes: int | None,
    options: dict[str, Any],
) -> None:
    """What `Communicator.register` does."""
    texts: list[str] = []
    try:
        places = [communicator.node_of(rank) for rank in range(communicator.size)]
        texts = plans_for(program, *shape_of(places, nodes), options)
    finally:
        # A rank without plans says so: the others would wait for it.
        if not texts:
            with contextlib.suppress(MisuseError):
                communicator.register_plans([])
    communicator.register_plans(texts, *sizes)


def shape_of(nodes_of_ranks: Sequence[int], nodes: int | None) -> tuple[int, int]:
    """Ranks and nodes that a program is compiled for.

    Args:
        nodes_of_ranks: The node of each rank.
        nodes: What the caller says; None takes the communicator's own.

    Raises:
        MisuseError: None was given, and the nodes do not have equally many ranks, one node after
            the other.
    """
    ranks = len(nodes_of_ranks)
    if nodes is not None:
        return ranks, nodes
    found = len(set(nodes_of_ranks))
    if ranks % found or list(nodes_of_ranks) != [rank * found // ranks for rank in range(ranks)]:
        raise MisuseError(
            f"the {ranks} ranks of the communicator do not lie on its {found} nodes one node after "
            "the other, equally many on each, as programs number them; nodes=1 compiles the "
            "program as for one node"
        )
    return ranks, found


def plans_for(
    program: Program | native.Plan, ranks: int, nodes: int, options: dict[str, Any]
) -> list[str]:
    """The plans to register: of a program, one for calls in place too where it is written so.

    Args:
        program: The program, or a plan, which is taken as it is.
        ranks: The communicator's.
        nodes: The communicator's.
        options: The options of `Program.compile`.

    Returns:
        Plans as JSON.
    """
    if isinstance(program, native.Plan):
        if options:
            raise MisuseError(
                f"plan {program.name} is registered with {', '.join(options)}; a plan is compiled "
                "already"
            )
        return [program.to_json()]
    places = (False, True) if program.in_place else (False,)
    return [
        program.compile(ranks, nodes, in_place=in_place, **options).plan.to_json()
        for in_place in places
    ]
