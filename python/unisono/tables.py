"""The one way that tables are printed: names and numbers are never cut, at any width.

A column that has one value in all rows moves into the heading, if it may. What is still wider than
the terminal is printed as several tables, each with the columns that name the row. Where these
columns leave no room for another one, each row is a block of lines.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

__all__ = ["Column", "Table", "label", "number", "prose"]

_GAP = 2
# Text that is broken into lines is given so many columns at least.
_LEAST_PROSE = 24

Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading; a unit may be on a line of its own.
        right: Aligned to the right, as numbers are.
        wraps: A text that may be broken into lines.
        folds: Goes into the heading where all rows have one value.
    """

    name: str
    right: bool = False
    wraps: bool = False
    folds: bool = False


def label(name: str, *, folds: bool = False) -> Column:
    """A column of names."""
    return Column(name, folds=folds)


def number(name: str, *, folds: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, right=True, folds=folds)


def prose(name: str) -> Column:
    """A column of sentences."""
    return Column(name, wraps=True)


class Table:
    """A table, to be printed by `console.print(table, crop=False)`.

    Attributes:
        columns: All of its columns.
        rows: The cells, a list for each row. A text is shown as it is, without markup.
        title: A line above it.
        keys: The first so many columns name a row: each part of a table that is too wide has them.
    """

    def __init__(self, columns: Sequence[Column], *, title: str | None = None, keys: int = 1):
        self.columns = list(columns)
        self.rows: list[list[Text]] = []
        self.title = title
        self.keys = keys

    def add_row(self, *cells: Cell | float) -> None:
        """Adds a row, a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([one if isinstance(one, Text) else Text(str(one)) for one in cells])

    def cells(self, column: str) -> list[str]:
        """The texts of a column, by its heading."""
        place = [one.name for one in self.columns].index(column)
        return [row[place].plain for row in self.rows]

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        every = range(len(self.columns))
        is_wide = sum(self._width(i) + _GAP for i in every) - _GAP > options.max_width
        folded = [i for i in every if self._is_folded(i, is_wide)]
        shown = [i for i in range(len(self.columns)) if i not in folded]
        heading = [f"{self.columns[i].name} {self.rows[0][i].plain}" for i in folded]
        if self.title or heading:
            yield Text("\n".join(filter(None, (self.title, ", ".join(heading)))))
        if heading:
            yield Text("")
        if self._needs_blocks(shown, options.max_width):
            yield from self._blocks(shown, options.max_width)
            return
        for number_of_part, part in enumerate(self._parts(shown, options.max_width)):
            if number_of_part:
                yield Text("")
            table, least = self._part(part)
            yield from console.render(
                table, options.update(width=max(options.max_width, least), height=None)
            )

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _is_folded(self, column: int, is_wide: bool) -> bool:
        """A single row keeps its columns where they fit."""
        values = {row[column].plain for row in self.rows}
        is_enough = len(self.rows) > 1 or is_wide
        return self.columns[column].folds and is_enough and len(values) == 1

    def _width(self, column: int) -> int:
        """The least width at which nothing of a column is cut."""
        heading = max(map(len, self.columns[column].name.split("\n")))
        widest = max((row[column].cell_len for row in self.rows), default=0)
        if not self.columns[column].wraps:
            return max(heading, widest)
        words = [len(word) for row in self.rows for word in row[column].plain.split()]
        return min(max([heading, _LEAST_PROSE, *words]), max(heading, widest))

    def _keys(self, shown: Sequence[int]) -> list[int]:
        return [i for i in shown if i < self.keys] or list(shown[:1])

    def _needs_blocks(self, shown: Sequence[int], width: int) -> bool:
        """Whether the columns that name a row and one more are wider than the terminal."""
        keys = self._keys(shown)
        others = [self._width(i) for i in shown if i not in keys]
        if not others:
            return False
        return sum(self._width(i) + _GAP for i in keys) + max(others) > width

    def _blocks(self, shown: Sequence[int], width: int) -> Iterator[Text]:
        """Each row as its name, and a line for each other column."""
        keys = self._keys(shown)
        for number_of_row, row in enumerate(self.rows):
            if number_of_row:
                yield Text("")
            yield _line("  ".join(row[i].plain for i in keys), style="bold")
            for i in (i for i in shown if i not in keys):
                name = " ".join(self.columns[i].name.split())
                text = f"{name}: {row[i].plain}" if name else row[i].plain
                if self.columns[i].wraps:
                    yield _line(textwrap.fill(
                        text, width, initial_indent="  ", subsequent_indent="    ",
                        break_long_words=False, break_on_hyphens=False,
                    ))  # fmt: skip
                else:
                    yield _line(f"  {text}")

    def _parts(self, shown: Sequence[int], width: int) -> list[list[int]]:
        """The columns of each part, so that parts are as narrow as the terminal, if they can be."""
        keys = self._keys(shown)
        parts = [keys]
        for column in (i for i in shown if i not in keys):
            needed = sum(self._width(i) + _GAP for i in [*parts[-1], column]) - _GAP
            if needed > width and len(parts[-1]) > len(keys):
                parts.append(list(keys))
            parts[-1] = [*parts[-1], column]
        return parts

    def _part(self, columns: Sequence[int]) -> tuple[RichTable, int]:
        table = RichTable(header_style="bold", box=None, pad_edge=False, padding=(0, 1))
        for i in columns:
            column = self.columns[i]
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                vertical="top",
                no_wrap=not column.wraps,
                overflow="fold",
                min_width=self._width(i),
            )
        for row in self.rows:
            table.add_row(*(row[i] for i in columns))
        return table, sum(self._width(i) + _GAP for i in columns) - _GAP


def _line(text: str, style: str = "") -> Text:
    """A line that is neither cut nor broken."""
    return Text(text, style, no_wrap=True, overflow="ignore")
