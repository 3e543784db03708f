"""The traffic matrix of a plan: what each rank sends to each other one."""

from collections import Counter

from unisono.draw.svg import Svg
from unisono.plans import Plan

__all__ = ["draw_traffic", "traffic"]

_LEFT, _TOP, _RIGHT, _BELOW = 70, 84, 16, 20
_CELL_MIN, _CELL_MAX, _AIM = 7, 46, 640
_COLOUR = "#0072b2"


def traffic(plan: Plan) -> dict[tuple[int, int], tuple[int, int]]:
    """By sender and receiver, where there is anything: messages, and chunks that they carry.

    Puts are counted as messages; so are the chunks that a read_reduce reads from its peers.
    """
    messages: Counter[tuple[int, int]] = Counter()
    chunks: Counter[tuple[int, int]] = Counter()
    for rank in range(plan.ranks):
        for block in plan.thread_blocks(rank):
            for step in block.steps:
                ways = [(peer, rank) for peer in step.peers]
                if step.operation == "put" or (step.sends and step.operation != "signal"):
                    ways.append((rank, block.send_peer))
                for way in ways:
                    messages[way] += 1
                    chunks[way] += step.count
    return {way: (messages[way], chunks[way]) for way in sorted(messages)}


def draw_traffic(plan: Plan, *, standalone: bool = True) -> str:
    """The matrix, as SVG: senders down, receivers along, blocks in the cells.

    Args:
        plan: The plan.
        standalone: False leaves out the style sheet, for a page that has it.
    """
    sent = traffic(plan)
    cell = min(_CELL_MAX, max(_CELL_MIN, _AIM / plan.ranks))
    width = max(_LEFT + cell * plan.ranks + _RIGHT, 420.0)
    svg = Svg(width, _TOP + cell * plan.ranks + _BELOW, f"traffic matrix of {plan.name}")
    svg.label(12, 20, f"{plan.name} on {plan.ranks} ranks: who sends how much", class_="title")
    total = sum(chunks for _, chunks in sent.values()) / plan.chunks_per_block
    svg.label(
        12,
        37,
        f"in blocks; {len(sent)} connections, {sum(m for m, _ in sent.values())} messages, "
        f"{total:g} blocks in all",
    )
    svg.label(_LEFT, _TOP - 24, "to rank")
    most = max((chunks for _, chunks in sent.values()), default=1)
    every = max(1, round(18 / cell))
    for rank in range(plan.ranks):
        if rank % every == 0:
            middle = cell * (rank + 0.5)
            svg.label(_LEFT + middle, _TOP - 7, str(rank), anchor="middle")
            svg.label(_LEFT - 6, _TOP + middle + 4, f"rank {rank}", anchor="end")
    svg.rect(_LEFT, _TOP, cell * plan.ranks, cell * plan.ranks, class_="band")
    for (sender, receiver), (messages, chunks) in sent.items():
        x, y = _LEFT + cell * receiver, _TOP + cell * sender
        blocks = chunks / plan.chunks_per_block
        svg.rect(
            x + 0.5,
            y + 0.5,
            cell - 1,
            cell - 1,
            f"rank {sender} to rank {receiver}: {blocks:g} blocks ({chunks} chunks) in "
            f"{messages} messages",
            class_="bar",
            fill=_COLOUR,
            fill_opacity=0.12 + 0.43 * chunks / most,
        )
        if cell >= 26:
            svg.label(x + cell / 2, y + cell / 2 + 4, f"{blocks:.3g}", anchor="middle",
                      class_="in-dot")  # fmt: skip
    return svg.text(standalone)
