"""Pipeline schedules: which layers a stage has, and in which order it computes them.

A stage with `virtual` chunks has positions stage, stage + stages, ... of the model, which is cut
into stages x virtual positions (Narayanan et al., "Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM", section 2.2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from unisono.errors import MisuseError


@dataclass(frozen=True)
class Slot:
    """A pass of one micro-batch through one chunk of a stage."""

    is_forward: bool
    batch: int
    chunk: int


def split_layers(layers: int, positions: int) -> list[int]:
    """The number of layers at each position.

    Where positions do not divide the layers, the ends have one fewer: the embedding and the head
    are there. Llama 3 405B has 126 layers on 16 stages so: 7, 14 times 8, 7.

    Raises:
        MisuseError: A position would have neither a layer nor the embedding nor the head.
    """
    if layers < positions - 2 or layers < 1:
        raise MisuseError(
            f"{layers} layers do not fill {positions} positions (pipeline x virtual); at most "
            f"{layers + 2} have work"
        )
    least, longer = divmod(layers, positions)
    lacking = positions - longer
    first, last = (lacking + 1) // 2, lacking // 2
    return [
        least + (first <= position < positions - last) if longer else least
        for position in range(positions)
    ]


def check_batches(stages: int, virtual: int, batches: int) -> None:
    """Refuses micro-batches that an interleaved schedule cannot take in groups.

    Raises:
        MisuseError: The stages do not divide them.
    """
    if virtual > 1 and batches % stages:
        raise MisuseError(
            f"each rank has {batches} micro-batches; with virtual {virtual}, pipeline {stages} "
            "must divide them"
        )


def order(stage: int, stages: int, virtual: int, batches: int) -> Iterator[Slot]:
    """What a stage computes, in order: 1F1B, interleaved where it has several chunks.

    Megatron-LM's order (megatron/core/pipeline_parallel/schedules.py): groups of as many
    micro-batches as stages go through one chunk after another.
    """
    total = batches * virtual
    warm_up = _warm_up(stage, stages, virtual, total)
    forward = [_slot(True, i, stages, virtual) for i in range(total)]
    backward = [_slot(False, i, stages, virtual) for i in range(total)]
    yield from forward[:warm_up]
    for i in range(total - warm_up):
        yield forward[warm_up + i]
        yield backward[i]
    yield from backward[total - warm_up :]


def _slot(is_forward: bool, number: int, stages: int, virtual: int) -> Slot:
    if virtual == 1:
        return Slot(is_forward, number, 0)
    group, place = divmod(number, stages * virtual)
    chunk, batch = divmod(place, stages)
    return Slot(is_forward, group * stages + batch, chunk if is_forward else virtual - 1 - chunk)


def _warm_up(stage: int, stages: int, virtual: int, total: int) -> int:
    """Forward passes before the first backward pass, but for the one right before it."""
    ahead = stages - stage - 1
    if virtual > 1:
        ahead = 2 * ahead + (virtual - 1) * stages
    return min(ahead, total)


def in_flight(stage: int, stages: int, virtual: int, batches: int) -> int:
    """The most passes whose activations a stage keeps at once, each of one chunk."""
    total = batches * virtual
    return min(_warm_up(stage, stages, virtual, total) + 1, total)


@dataclass(frozen=True)
class Timed:
    """A slot as it runs."""

    stage: int
    slot: Slot
    began: float
    ended: float


@lru_cache(maxsize=32)
def _orders(stages: int, virtual: int, batches: int) -> list[list[Slot]]:
    return [list(order(stage, stages, virtual, batches)) for stage in range(stages)]


def run(
    forward: Sequence[float], backward: Sequence[float], stages: int, batches: int, hop: float
) -> list[Timed]:
    """Runs a schedule.

    Args:
        forward: What the forward pass of one micro-batch takes at each position.
        backward: The same for the backward pass.
        stages: The number of stages; the positions are stages x chunks.
        batches: Micro-batches.
        hop: What a message between two positions takes, in the same unit.

    Returns:
        Every slot of every stage, in the unit of its times.
    """
    positions = len(forward)
    orders = _orders(stages, positions // stages, batches)
    next_slot = [0] * stages
    free = [0.0] * stages
    ended: dict[tuple[bool, int, int], float] = {}
    done = []
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while next_slot[stage] < len(orders[stage]):
                slot = orders[stage][next_slot[stage]]
                position = slot.chunk * stages + stage
                ready = _ready(slot, position, positions, ended, hop)
                if ready is None:
                    break
                began = max(free[stage], ready)
                took = forward[position] if slot.is_forward else backward[position]
                free[stage] = began + took
                ended[slot.is_forward, slot.batch, position] = free[stage]
                done.append(Timed(stage, slot, began, free[stage]))
                next_slot[stage] += 1
                moved = True
    if len(done) < sum(map(len, orders)):
        raise MisuseError(f"{stages} stages wait for each other with {batches} micro-batches")
    return done


def span(
    forward: Sequence[float], backward: Sequence[float], stages: int, batches: int, hop: float
) -> float:
    """When the last pass of a schedule ends; the arguments are those of `run`.

    Groups of micro-batches, of as many as stages, take turns alike once the pipeline is full: the
    third and the fourth say what each further one takes.
    """
    full, period = 3 * stages, stages
    if batches <= full + period:
        return max(one.ended for one in run(forward, backward, stages, batches, hop))
    begun, more = (
        max(one.ended for one in run(forward, backward, stages, count, hop))
        for count in (full, full + period)
    )
    return begun + (more - begun) / period * (batches - full)


def _ready(
    slot: Slot, position: int, positions: int, ended: dict[tuple[bool, int, int], float], hop: float
) -> float | None:
    """When a slot may begin; None: what it waits for has not run."""
    before = position - 1 if slot.is_forward else position + 1
    if 0 <= before < positions:
        found = ended.get((slot.is_forward, slot.batch, before))
        return None if found is None else found + hop
    return 0.0 if slot.is_forward else ended.get((True, slot.batch, position))
