"""Pictures of a pipeline: which stage computes which micro-batch, and when."""

from collections.abc import Sequence
from dataclasses import dataclass

from unisono.draw.chart import WIDE
from unisono.draw.look import PALETTE
from unisono.draw.svg import Svg

_LEFT, _TOP, _RIGHT, _BELOW = 62, 44, 12, 44
_ROW, _GAP = 18, 3
# A bar as wide as this has room for its number.
_READABLE = 14.0


@dataclass(frozen=True)
class Bar:
    """A pass of a micro-batch through a chunk of a stage, in seconds."""

    stage: int
    chunk: int
    batch: int
    is_forward: bool
    began_s: float
    ended_s: float


def draw_passes(
    title: str, bars: Sequence[Bar], *, width: int = WIDE, standalone: bool = True
) -> str:
    """A row for each stage, as SVG; chunks have colours, and backward passes are paler.

    Args:
        title: Above the picture.
        bars: At least one.
        width: In pixels.
        standalone: The picture has a style sheet of its own.
    """
    stages = 1 + max(bar.stage for bar in bars)
    begin, end = min(bar.began_s for bar in bars), max(bar.ended_s for bar in bars)
    svg = Svg(width, _TOP + stages * (_ROW + _GAP) + _BELOW, title)
    svg.label(12, 18, title, class_="title")
    room = (width - _LEFT - _RIGHT) / max(end - begin, 1e-12)
    for stage in range(stages):
        y = _TOP + stage * (_ROW + _GAP)
        svg.rect(_LEFT, y, width - _LEFT - _RIGHT, _ROW, class_="band")
        svg.label(_LEFT - 6, y + 13, f"stage {stage}", anchor="end")
    for bar in bars:
        x, length = _LEFT + (bar.began_s - begin) * room, (bar.ended_s - bar.began_s) * room
        y = _TOP + bar.stage * (_ROW + _GAP)
        which = "forward" if bar.is_forward else "backward"
        hover = (
            f"{which}, micro-batch {bar.batch}, chunk {bar.chunk}: {bar.began_s:.3f} s to "
            f"{bar.ended_s:.3f} s"
        )
        svg.rect(
            x, y, max(length - 0.5, 0.3), _ROW, hover, class_="bar",
            fill=PALETTE[bar.chunk % len(PALETTE)], opacity=0.9 if bar.is_forward else 0.5,
        )  # fmt: skip
        if length >= _READABLE:
            svg.label(x + length / 2, y + 13, str(bar.batch), anchor="middle", class_="in-dot")
    bottom = _TOP + stages * (_ROW + _GAP)
    svg.label(_LEFT, bottom + 15, f"{begin:.2f} s")
    svg.label(width - _RIGHT, bottom + 15, f"{end:.2f} s", anchor="end")
    svg.label(12, bottom + 33, "full: forward; pale: backward; a colour for each chunk of a stage")
    return svg.text(standalone)
