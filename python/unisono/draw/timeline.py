"""Time lines: a row for each stage, stream or rank, and a bar for each thing that it does."""

from collections.abc import Sequence
from dataclasses import dataclass

from unisono.draw.chart import WIDE
from unisono.draw.look import PALETTE
from unisono.draw.svg import Svg

_TOP, _RIGHT, _BELOW = 44, 12, 26
_ROW, _GAP, _LETTER = 18, 3, 6.4
# The names of rows have so many letters at most.
_MOST_LETTERS = 18


@dataclass(frozen=True)
class Span:
    """A bar of a time line.

    Attributes:
        row: Where it is.
        name: Shown where the pointer rests.
        began_s: In seconds.
        ended_s: In seconds.
        label: Written into the bar where there is room.
        of: What it has the colour of; "": its row.
        is_pale: It is the second of two kinds.
    """

    row: str
    name: str
    began_s: float
    ended_s: float
    label: str = ""
    of: str = ""
    is_pale: bool = False


def draw_timeline(
    title: str, spans: Sequence[Span], *, note: str = "", width: int = WIDE,
    standalone: bool = True,
) -> str:  # fmt: skip
    """The time line, as SVG; rows are in the order in which they come.

    Args:
        title: Above the picture.
        spans: At least one.
        note: What colours mean.
        width: In pixels.
        standalone: The picture has a style sheet of its own.
    """
    rows = {row: place for place, row in enumerate(dict.fromkeys(span.row for span in spans))}
    # In the order in which they come, so that no two of a palette's length look alike.
    names = dict.fromkeys(span.of or span.row for span in spans)
    colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}
    begin, end = min(span.began_s for span in spans), max(span.ended_s for span in spans)
    bottom = _TOP + len(rows) * (_ROW + _GAP)
    svg = Svg(width, bottom + _BELOW + (16 if note else 0), title)
    svg.label(12, 18, title, class_="title")
    left = 18 + _LETTER * min(_MOST_LETTERS, max(map(len, rows)))
    room = (width - left - _RIGHT) / max(end - begin, 1e-12)
    for row, place in rows.items():
        y = _TOP + place * (_ROW + _GAP)
        svg.rect(left, y, width - left - _RIGHT, _ROW, class_="band")
        svg.label(left - 6, y + 13, row[:_MOST_LETTERS], anchor="end", class_="chart-name")
    for span in spans:
        x, length = left + (span.began_s - begin) * room, (span.ended_s - span.began_s) * room
        y = _TOP + rows[span.row] * (_ROW + _GAP)
        hover = f"{span.name}: {span.began_s:.4g} s to {span.ended_s:.4g} s"
        svg.rect(
            x, y, max(length - 0.5, 0.3), _ROW, hover, class_="bar",
            fill=colours[span.of or span.row], opacity=0.5 if span.is_pale else 0.9,
        )  # fmt: skip
        if span.label and length >= _LETTER * len(span.label) + 2:
            svg.label(x + length / 2, y + 13, span.label, anchor="middle", class_="in-dot")
    svg.label(left, bottom + 15, f"{begin:.4g} s")
    svg.label(width - _RIGHT, bottom + 15, f"{end:.4g} s", anchor="end")
    if note:
        svg.label(12, bottom + 33, note)
    return svg.text(standalone)
