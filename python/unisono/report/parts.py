"""What reports are made of: tables whose heads have units, and charts that fit their screen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from unisono._unisono import format_bytes
from unisono.draw.chart import NARROW, WIDE
from unisono.draw.svg import STYLE
from unisono.extras import missing_extra

_NAME = "environment"

_NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its head.
        unit: Stands in the head, in parentheses.
        best: Which value is marked as the best of those that its row is compared with.
        is_text: Aligned and sorted as text.
    """

    name: str
    unit: str = ""
    best: Literal["", "least", "most"] = ""
    is_text: bool = False

    @property
    def head(self) -> str:
        """Name and unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Cell:
    """What a cell shows.

    Attributes:
        value: What it is sorted by; None: the cell is empty.
        why: For an empty cell, why; otherwise more about the value.
    """

    text: str
    value: float | str | None
    why: str = ""
    is_best: bool = False
    is_good: bool = False
    is_bad: bool = False


def number(value: float, write: str = ",.2f") -> Cell:
    """A cell with a number."""
    return Cell(format(value, write), value)


def text(value: str) -> Cell:
    """A cell with text."""
    return Cell(value, value)


def size(value: int) -> Cell:
    """A cell with bytes."""
    return Cell(format_bytes(value), value)


def empty(why: str) -> Cell:
    """A cell with nothing in it, and why."""
    return Cell(_NOTHING, None, why)


@dataclass
class Table:
    """Rows under columns.

    Attributes:
        compared: How many of the first columns say what a row is compared with: the best value is
            marked among rows that agree in them.
        note: A sentence below.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]] = field(default_factory=list)
    compared: Sequence[int] = ()
    note: str = ""

    def marked(self) -> list[list[Cell]]:
        """The rows, with the best values marked where several are compared."""
        rows = [list(row) for row in self.rows]
        for place, column in enumerate(self.columns):
            if not column.best:
                continue
            groups: dict[tuple[str, ...], list[int]] = {}
            for number, row in enumerate(rows):
                if isinstance(row[place].value, int | float):
                    groups.setdefault(tuple(row[i].text for i in self.compared), []).append(number)
            for group in groups.values():
                values = [rows[number][place].value for number in group]
                best = min(values) if column.best == "least" else max(values)  # type: ignore[type-var]
                if len(group) < 2 or min(values) == max(values):  # type: ignore[type-var]
                    continue
                for number in group:
                    cell = rows[number][place]
                    if cell.value == best:
                        rows[number][place] = replace(cell, is_best=True)
        return rows


def responsive(draw: Callable[[int], str]) -> str:
    """A chart in two widths, of which the page shows the one that fits."""
    return (
        f'<div class="chart broad">{draw(WIDE)}</div><div class="chart narrow">{draw(NARROW)}</div>'
    )


def environment() -> Any:
    """Where templates are found, with their filters.

    Raises:
        MachineError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise missing_extra("writing HTML", "jinja2", "report") from None
    found = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader(__package__, ""),
    )
    found.filters["size"] = format_bytes
    found.globals["svg_style"] = STYLE
    return found
