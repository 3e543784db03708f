"""The chunk graph of a plan: how one chunk gets about, ranks down, logical time along.

A dot is a value that a rank holds from that time on, with how many input chunks it is the sum of; a
line leads to it from each value that it was made of.
"""

from collections.abc import Callable

from unisono.draw.contents import Contents, follow
from unisono.draw.space_time import channel_colour
from unisono.draw.svg import Svg
from unisono.errors import MisuseError
from unisono.plans import Plan, Schedule

__all__ = ["draw_chunks"]

_LEFT, _TOP, _RIGHT, _BELOW = 70, 66, 30, 24
_ROW, _COLUMN_MIN, _COLUMN_MAX, _WIDTH_AIM = 34, 16, 70, 900
_DOT = 9


def draw_chunks(plan: Plan, chunk: int = 0, *, standalone: bool = True) -> str:
    """The way of one chunk, as SVG.

    Args:
        plan: The plan.
        chunk: Which, numbered from 0 in the order of `Contents.families`.
        standalone: False leaves out the style sheet, for a page that has it.

    Raises:
        MisuseError: There is no such chunk, or the plan does not end.
    """
    schedule = plan.schedule()
    contents = follow(plan, schedule)
    families = contents.families()
    if not 0 <= chunk < len(families):
        raise MisuseError(
            f"chunk is {chunk}; {plan.name} on {plan.ranks} ranks moves {len(families)}, "
            f"{'numbered from 0' if families else 'so there is nothing to draw'}"
        )
    channels = message_channels(plan, schedule)
    return draw_family(plan.name, contents, families[chunk], channels, standalone=standalone)


def draw_family(
    name: str, contents: Contents, family: list[int], channels: list[int], *, standalone: bool
) -> str:
    """The drawing of values that have to do with each other.

    Args:
        name: The plan's.
        contents: All values.
        family: The numbers of those to draw.
        channels: The channel of each message of the schedule.
        standalone: False leaves out the style sheet, for a page that has it.
    """
    values = contents.values
    times = sorted({values[number].time for number in family})
    column = {time: index for index, time in enumerate(times)}
    unit = min(float(_COLUMN_MAX), max(_COLUMN_MIN, _WIDTH_AIM / max(1, len(times) - 1)))
    ranks = sorted({values[number].rank for number in family})
    row = {rank: index for index, rank in enumerate(ranks)}
    width = max(_LEFT + unit * (len(times) - 1) + _RIGHT, 360.0)
    svg = Svg(width, _TOP + _ROW * len(ranks) + _BELOW, f"the way of a chunk in {name}")
    svg.label(12, 20, f"{name}: {_shortened(contents.largest(family))}", class_="title")
    svg.label(12, 37, "a dot is a value of a rank; its number is how many ranks' parts it holds")
    for rank, index in row.items():
        top = _TOP + _ROW * index
        svg.line(_LEFT, top, width - _RIGHT + 14, top, class_="grid")
        svg.label(_LEFT - 16, top + 4, f"rank {rank}", anchor="end")
    for time, index in column.items():
        if index % max(1, round(24 / unit)) == 0:
            svg.label(_LEFT + unit * index, _TOP - 16, str(time), anchor="middle")

    def place(number: int) -> tuple[float, float]:
        value = values[number]
        return _LEFT + unit * column[value.time], _TOP + _ROW * row[value.rank]

    for number in family:
        _draw_lines(svg, contents, number, place, channels)
    for number in family:
        x, y = place(number)
        value = values[number]
        hover = f"rank {value.rank}, from time {value.time} on: {contents.words(number)}"
        svg.element("circle", hover, cx=x, cy=y, r=_DOT, class_="dot")
        svg.label(x, y + 4, str(len(value.of)), anchor="middle", class_="in-dot")
    return svg.text(standalone)


def _draw_lines(
    svg: Svg,
    contents: Contents,
    number: int,
    place: Callable[[int], tuple[float, float]],
    channels: list[int],
) -> None:
    value = contents.values[number]
    x, y = place(number)
    for maker in value.makers:
        other = contents.values[maker]
        from_x, from_y = place(maker)
        crosses = other.rank != value.rank
        channel = channels[value.message] if value.message >= 0 else 0
        text = f"rank {other.rank} to rank {value.rank}" + (
            f", channel {channel}" if crosses else ", in memory"
        )
        svg.line(
            from_x,
            from_y,
            x,
            y,
            f"{text}: {contents.words(maker)}",
            class_="arrow",
            stroke=channel_colour(channel) if crosses else "#6f7f92",
            stroke_dasharray="none" if crosses else "3 3",
        )


def step_channels(plan: Plan) -> list[int]:
    """The channel of each step of the schedule."""
    return [
        block.channel
        for rank in range(plan.ranks)
        for block in plan.thread_blocks(rank)
        for _ in block.steps
    ]


def message_channels(plan: Plan, schedule: Schedule) -> list[int]:
    """The channel of each message of the schedule."""
    of_step = step_channels(plan)
    return [of_step[message.sender] for message in schedule.messages]


def _shortened(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
