"""The space-time drawing of a plan: ranks down, logical time along.

Every thread block of a rank has a lane, its steps are bars coloured by operation, and messages are
arrows coloured by channel. A step takes one unit of time, and so does a message; a bar is drawn
where its step runs when nothing but the plan holds it up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from unisono.draw.look import PALETTE
from unisono.draw.svg import Svg
from unisono.errors import MisuseError
from unisono.plans import Plan, Schedule

# In the legend's order. Steps that reduce are warm, steps that only move data are cool.
_OPERATION_COLOURS = {
    "send": "#56b4e9",
    "recv": "#0072b2",
    "copy": "#6f7f92",
    "copy_send": "#4d8f8b",
    "recv_copy_send": "#009e73",
    "reduce": "#b0413e",
    "recv_reduce_copy": "#d55e00",
    "recv_reduce_send": "#e69f00",
    "recv_reduce_copy_send": "#cc79a7",
    "put": "#7a5fc0",
    "signal": "#c2569b",
    "wait": "#946b2d",
    "read_reduce": "#8f7a00",
    "barrier": "#5a5a5a",
}

_LEFT, _TOP, _RIGHT = 108, 66, 16
_RANK_GAP = 7
# Lanes get thin when there are many.
_LANE, _THIN_LANE, _MANY_LANES = 13, 6, 80
# A unit of time is wide when there are few, so that a tall picture's arrows are not steep.
_UNIT_MIN, _UNIT_MAX, _WIDTH_AIM, _STEEPEST = 7, 30, 1200, 4
_LEGEND_LINE, _LEGEND_ITEM = 18, 176


@dataclass(frozen=True)
class _Lanes:
    """Where lanes are: the top of each (rank, thread block), and of each rank's band."""

    tops: dict[tuple[int, int], float]
    bands: list[tuple[float, float]]  # by rank: top and height
    height: float  # of a lane
    bottom: float


def draw_plan(
    plan: Plan, node_of_rank: Sequence[int] | None = None, *, standalone: bool = True
) -> str:
    """The drawing, as SVG.

    Args:
        plan: The plan; readable up to some 16 ranks.
        node_of_rank: To label ranks with their nodes.
        standalone: False leaves out the style sheet, for a page that has it.

    Raises:
        MisuseError: The plan does not end: it waits for itself. Or the nodes are not of its ranks.
    """
    if node_of_rank is not None and len(node_of_rank) != plan.ranks:
        raise MisuseError(
            f"node_of_rank has {len(node_of_rank)} nodes; plan {plan.name} has {plan.ranks} ranks"
        )
    schedule = plan.schedule()
    channels = {
        (rank, number): block.channel
        for rank in range(plan.ranks)
        for number, block in enumerate(plan.thread_blocks(rank))
    }
    lanes = _lay_out(plan.ranks, list(channels))
    fitting = max(_UNIT_MIN, _WIDTH_AIM / max(1, schedule.duration))
    widest = max(_UNIT_MAX, lanes.bottom / _STEEPEST / max(1, schedule.duration))
    unit = min(fitting, widest)
    used = {step.operation for step in schedule.steps}
    operations = [name for name in _OPERATION_COLOURS if name in used]
    used_channels = sorted(set(channels.values())) if schedule.messages else []
    width = max(_LEFT + unit * schedule.duration + _RIGHT, _LEFT + 3 * _LEGEND_ITEM)
    columns = max(1, int((width - _LEFT) // _LEGEND_ITEM))
    legend_items = len(operations) + len(used_channels)
    height = lanes.bottom + 14 + _LEGEND_LINE * (-(-legend_items // columns) + 0.5)
    svg = Svg(width, height, f"space-time drawing of {plan.name} on {plan.ranks} ranks")
    _draw_frame(svg, plan, schedule, lanes, unit, node_of_rank)
    _draw_bars(svg, schedule, lanes, unit)
    _draw_messages(svg, schedule, lanes, unit, channels)
    _draw_legend(svg, operations, used_channels, lanes.bottom + 14, columns)
    return svg.text(standalone)


def channel_colour(channel: int) -> str:
    """The colour of a channel's messages."""
    return PALETTE[channel % len(PALETTE)]


def _lay_out(ranks: int, keys: list[tuple[int, int]]) -> _Lanes:
    tops: dict[tuple[int, int], float] = {}
    bands = [(0.0, 0.0)] * ranks
    y = float(_TOP)
    lane_height = _LANE if len(keys) <= _MANY_LANES else _THIN_LANE
    blocks = {rank: list(group) for rank, group in groupby(keys, key=lambda key: key[0])}
    for rank in range(ranks):
        own = blocks.get(rank, [])
        for lane, key in enumerate(own):
            tops[key] = y + 3 + lane * lane_height
        height = 6 + lane_height * max(1, len(own))
        bands[rank] = (y, height)
        y += height + _RANK_GAP
    return _Lanes(tops, bands, lane_height, y)


def _draw_frame(
    svg: Svg,
    plan: Plan,
    schedule: Schedule,
    lanes: _Lanes,
    unit: float,
    node_of_rank: Sequence[int] | None,
) -> None:
    place = ", in place" if plan.in_place else ""
    chunks = f"{plan.chunks_per_block} chunk{'s' if plan.chunks_per_block > 1 else ''} a block"
    svg.label(_LEFT, 20, f"{plan.name} on {plan.ranks} ranks", class_="title")
    svg.label(_LEFT, 37, f"{plan.protocol}, {chunks}{place}; ends at time {schedule.duration}")
    for rank, (top, height) in enumerate(lanes.bands):
        svg.rect(_LEFT, top, unit * schedule.duration, height, class_="band")
        node = f" (node {node_of_rank[rank]})" if node_of_rank else ""
        svg.label(_LEFT - 6, top + height / 2 + 4, f"rank {rank}{node}", anchor="end")
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1 << 30) if step * unit >= 24)
    for tick in range(0, schedule.duration + 1, every):
        x = _LEFT + tick * unit
        svg.line(x, _TOP - 6, x, lanes.bottom - _RANK_GAP, class_="grid")
        svg.label(x, _TOP - 10, str(tick), anchor="middle")


def _draw_bars(svg: Svg, schedule: Schedule, lanes: _Lanes, unit: float) -> None:
    for step in schedule.steps:
        where = f"rank {step.rank}, thread block {step.thread_block}, step {step.number}"
        svg.rect(
            _LEFT + step.start * unit + 0.5,
            lanes.tops[step.rank, step.thread_block],
            max(2.0, (step.end - step.start) * unit - 1),
            lanes.height - 2,
            f"{where}, time {step.start} to {step.end}: {step.text}",
            class_="bar",
            rx=2,
            fill=_OPERATION_COLOURS.get(step.operation, "#888888"),
        )


def _draw_messages(
    svg: Svg,
    schedule: Schedule,
    lanes: _Lanes,
    unit: float,
    channels: dict[tuple[int, int], int],
) -> None:
    steps = schedule.steps
    # Names of markers are global in a page: a channel's is the same in every drawing.
    for channel in sorted(set(channels.values())):
        svg.arrowhead(f"u-arrow-{channel}", channel_colour(channel))
    middle = (lanes.height - 2) / 2
    for message in schedule.messages:
        sender, receiver = steps[message.sender], steps[message.receiver]
        channel = channels[sender.rank, sender.thread_block]
        svg.line(
            _LEFT + message.sent * unit,
            lanes.tops[sender.rank, sender.thread_block] + middle,
            _LEFT + message.arrived * unit,
            lanes.tops[receiver.rank, receiver.thread_block] + middle,
            f"rank {sender.rank} to rank {receiver.rank}, channel {channel}, "
            f"time {message.sent} to {message.arrived}",
            class_="arrow",
            stroke=channel_colour(channel),
            marker_end=f"url(#u-arrow-{channel})",
        )


def _draw_legend(
    svg: Svg, operations: Sequence[str], channels: Sequence[int], top: float, columns: int
) -> None:
    items = [(name, _OPERATION_COLOURS[name], True) for name in operations]
    items += [(f"messages, channel {c}", channel_colour(c), False) for c in channels]
    for index, (text, colour, is_bar) in enumerate(items):
        x = _LEFT + index % columns * _LEGEND_ITEM
        y = top + index // columns * _LEGEND_LINE
        if is_bar:
            svg.rect(x, y, 14, 10, fill=colour, rx=2)
        else:
            svg.line(x, y + 5, x + 14, y + 5, stroke=colour, stroke_width=2)
        svg.label(x + 20, y + 9, text)
