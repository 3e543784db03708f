"""A small writer of SVG: shapes with classes, hover texts, and a style sheet for light and dark."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

STYLE = """
.u-svg { --ink: #1b1f24; --faint: #d5dae1; --band: #f3f5f8; --paper: #ffffff;
  color-scheme: light dark; font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  .u-svg { --ink: #e6e9ee; --faint: #3b434e; --band: #1d232b; --paper: #14181d; } }
.u-svg text { fill: var(--ink); font-size: 11px; }
.u-svg .title { font-size: 15px; font-weight: 600; }
.u-svg .band { fill: var(--band); }
.u-svg .paper { fill: var(--paper); }
.u-svg .grid { stroke: var(--faint); stroke-width: 1; }
.u-svg .line { fill: none; stroke-width: 1.8; }
.u-svg .chart-name { font-size: 10.5px; }
.u-svg .arrow { fill: none; stroke-width: 1.2; opacity: 0.75; }
.u-svg .arrow:hover, .u-svg .line:hover { stroke-width: 3.5; opacity: 1; }
.u-svg .dot { fill: var(--paper); stroke: var(--ink); stroke-width: 1.2; }
.u-svg .dot:hover { stroke-width: 2.5; }
.u-svg .in-dot { pointer-events: none; }
.u-svg .bar:hover { stroke: var(--ink); stroke-width: 1.5; }
"""

Number = int | float
Value = int | float | str


class Svg:
    """A picture under construction; `text` ends it.

    Attributes:
        width: In pixels.
    """

    def __init__(self, width: Number, height: Number, description: str) -> None:
        self.width, self._height = width, height
        self._description = description
        self._parts: list[str] = []

    def element(
        self, name: str, hover: str = "", content: str = "", /, **attributes: Value
    ) -> None:
        """Adds an element. In names of attributes, _ stands for a dash; class_ for class."""
        words = [name]
        for key, value in attributes.items():
            if isinstance(value, float):
                value = f"{value:.2f}".rstrip("0").rstrip(".")
            words.append(f"{key.rstrip('_').replace('_', '-')}={quoteattr(str(value))}")
        inside = (f"<title>{escape(hover)}</title>" if hover else "") + escape(content)
        self._parts.append(
            f"<{' '.join(words)}>{inside}</{name}>" if inside else f"<{' '.join(words)}/>"
        )

    def rect(
        self,
        x: Number,
        y: Number,
        width: Number,
        height: Number,
        hover: str = "",
        **attributes: Value,
    ) -> None:
        """A rectangle."""
        self.element("rect", hover, x=x, y=y, width=width, height=height, **attributes)

    def line(
        self, x1: Number, y1: Number, x2: Number, y2: Number, hover: str = "", **attributes: Value
    ) -> None:
        """A straight line."""
        self.element("line", hover, x1=x1, y1=y1, x2=x2, y2=y2, **attributes)

    def polyline(
        self, points: Sequence[tuple[Number, Number]], hover: str = "", **attributes: Value
    ) -> None:
        """Straight lines through points."""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.element("polyline", hover, points=text, **attributes)

    def label(
        self, x: Number, y: Number, text: str, anchor: str = "start", **attributes: Value
    ) -> None:
        """Text whose baseline is at y."""
        self.element("text", "", text, x=x, y=y, text_anchor=anchor, **attributes)

    def arrowhead(self, name: str, colour: str) -> None:
        """Defines the marker `name` for the ends of lines."""
        self._parts.append(
            f'<marker id="{name}" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" '
            f'markerHeight="5" orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="{colour}"/></marker>'
        )

    def text(self, standalone: bool = True) -> str:
        """The picture; with its style sheet unless it is part of a page that has `STYLE`."""
        width, height = round(self.width), round(self._height)
        style = f"<style>{STYLE}</style>" if standalone else ""
        # Inside HTML the name space is known.
        name_space = 'xmlns="http://www.w3.org/2000/svg" ' if standalone else ""
        head = (
            f'<svg {name_space}class="u-svg" role="img" width="{width}" '
            f'height="{height}" viewBox="0 0 {width} {height}">'
        )
        paper = f'<rect class="paper" width="{width}" height="{height}"/>'
        body = "\n".join(self._parts)
        return f"{head}<desc>{escape(self._description)}</desc>{style}{paper}\n{body}\n</svg>\n"
