"""What the figures share: cells compared with the papers' numbers, their tables, and heat maps."""

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track
from unisono.draw.svg import Svg

_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _TOP = 74, 40, 86, 64


@dataclass(frozen=True)
class Paper:
    """What a paper says of a cell: a range, whose ends are alike for a number."""

    low: float
    high: float

    def text(self) -> str:
        """As the paper has it."""
        if self.high == math.inf:
            return f"> {self.low:g}"
        if self.low == -math.inf:
            return f"< {self.high:g}"
        low = f"{self.low:.3g}"
        return low if self.low == self.high else f"{low}-{self.high:.3g}"

    def deviation(self, value: float) -> float:
        """How far outside the range, as a part of its near end; 0 inside."""
        near = min(max(value, self.low), self.high)
        return value / near - 1


@dataclass(frozen=True)
class Cell:
    """A simulated value, and what the paper says of it, if it says anything."""

    figure: str
    row: str
    column: str
    value: float
    paper: Paper | None = None
    is_fitted: bool = False


def options(about: str) -> argparse.ArgumentParser:
    """The options of every figure."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--output", type=Path, help="a folder for the pictures and the table")
    return parser


def in_parallel(what: str, jobs: Sequence[Callable[[], Cell]]) -> list[Cell]:
    """All cells, on all cores."""
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(job) for job in jobs]
        return [future.result() for future in track(futures, what)]


def table(cells: Iterable[Cell]) -> str:
    """The cells that the paper says something of, as Markdown."""
    lines = ["| figure | | | paper | simulated | deviation | |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {cell.figure} | {cell.row} | {cell.column} | {cell.paper.text()} | {cell.value:.2f} | "
        f"{_deviation(cell.paper.deviation(cell.value))} | {'fitted' if cell.is_fitted else ''} |"
        for cell in cells
        if cell.paper is not None
    ]
    return "\n".join(lines) + "\n"


def _deviation(value: float) -> str:
    return "within" if value == 0 else f"{value:+.0%}"


def matrix(cells: Sequence[Cell]) -> str:
    """All cells of one figure, as Markdown: rows and columns as they come."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    lines = [f"| {cells[0].figure} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in dict.fromkeys(cell.row for cell in cells):
        values = {cell.column: cell.value for cell in cells if cell.row == row}
        shown = [f"{values[column]:.2f}" if column in values else "" for column in columns]
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def heat_map(title: str, cells: Sequence[Cell]) -> str:
    """A heat map of ratios: above 1 in blue, below in orange; under each what the paper says."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = list(dict.fromkeys(cell.row for cell in cells))
    width = _LEFT + len(columns) * _CELL_WIDTH + 12
    svg = Svg(width, _TOP + len(rows) * _CELL_HEIGHT + 12, title)
    svg.label(12, 22, title, class_="title")
    for i, column in enumerate(columns):
        svg.label(_LEFT + (i + 0.5) * _CELL_WIDTH, _TOP - 8, column, anchor="middle")
    for j, row in enumerate(rows):
        svg.label(_LEFT - 8, _TOP + (j + 0.5) * _CELL_HEIGHT + 4, row, anchor="end")
    for cell in cells:
        x = _LEFT + columns.index(cell.column) * _CELL_WIDTH
        y = _TOP + rows.index(cell.row) * _CELL_HEIGHT
        said = f"paper {cell.paper.text()}" if cell.paper else ""
        svg.element(
            "rect", f"{cell.row}, {cell.column}: {cell.value:.2f} {said}", x=x + 1, y=y + 1,
            width=_CELL_WIDTH - 2, height=_CELL_HEIGHT - 2,
            fill="#0072b2" if cell.value >= 1 else "#e69f00",
            fill_opacity=min(0.75, 0.08 + 0.16 * abs(math.log2(cell.value))),
        )  # fmt: skip
        svg.label(x + _CELL_WIDTH / 2, y + 18, f"{cell.value:.2f}", anchor="middle")
        svg.label(x + _CELL_WIDTH / 2, y + 32, said, anchor="middle")
    return svg.text(True)


def show(parts: Sequence[tuple[str, str, Sequence[Cell]]], folder: Path | None) -> None:
    """Prints the cells of each part (name, title, cells); with a folder, writes pictures too."""
    text = ""
    for name, title, cells in parts:
        text += f"\n{title}\n\n{matrix(cells)}"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.svg").write_text(heat_map(title, cells), encoding="utf-8")
    text += "\n" + table(cell for _, _, cells in parts for cell in cells)
    print(text)
    if folder is not None:
        (folder / f"{parts[0][0]}.md").write_text(text.lstrip(), encoding="utf-8")
