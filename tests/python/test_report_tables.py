"""What a reader of a report sees first, and what its tables tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from python.browser import in_browser
from unisono.bench.rows import Row
from unisono.report import Drawing, Training, page
from unisono.report.parts import Column, Table, empty, number, text

# Sorts the first table by its third column, twice, and looks at the page's width.
DRIVER = """
const seen = { errors: [] };
window.addEventListener("error", (event) => seen.errors.push(event.message));
const table = document.querySelectorAll("table.sortable")[0];
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
const button = table.tHead.rows[0].cells[2].querySelector("button");
seen.before = column();
button.click();
seen.up = column();
seen.sorted = button.closest("th").getAttribute("aria-sort");
button.click();
seen.down = column();
seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.narrow = getComputedStyle(document.querySelector(".narrow")).display !== "none";
seen.broad = getComputedStyle(document.querySelector(".broad")).display !== "none";
const box = table.parentElement;
seen.scrolls = box.scrollWidth > box.clientWidth;
document.body.innerHTML = "<pre id=seen></pre>";
document.getElementById("seen").textContent = JSON.stringify(seen);
"""


def row(size: int, algorithm: str, protocol: str, time_us: float, ranks: int = 8) -> Row:
    return Row(
        "all_reduce", size, "float32", ranks, 1, "unisono", algorithm, protocol, time_us, 0.1, 1.0,
        0,
    )  # fmt: skip


ROWS = [
    row(1024, "ring", "simple", 900.0),
    row(1024, "ring", "ll", 80.5),
    row(1024, "tree", "simple", 1100.0),
    row(1 << 20, "ring", "simple", 2000.0),
]


def test_the_page_begins_with_what_was_shown() -> None:
    curves = {"one process": {"loss": [1.0, 0.5], "accuracy": [0.5, 0.9]}}
    training = Training(8, 2, 60, 64, 1e-9, {}, True, True, curves)
    drawings = [Drawing(name, "<svg></svg>", name) for name in ("first", "second")]
    html = page.render_report(ROWS, title="t", drawings=drawings, training=training)
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    assert headings == [
        "A plan", "Training on handwritten digits", "The fastest of each collective", "Results",
        "More plans", "Machine",
    ]  # fmt: skip


def test_more_ranks_than_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert "8 ranks shared 2 cores" in page.render_report(ROWS, title="t")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert 'class="warning"' not in page.render_report(ROWS, title="t")


def test_heads_have_units_and_empty_cells_a_reason() -> None:
    html = page.render_report(ROWS, title="t")
    assert "1 KiB (µs · GB/s)" in html
    assert 'title="ll is for small messages: at 1 MiB only simple ran"' in html
    assert 'title="tree did not run at 1 MiB"' in html


def test_the_best_of_what_is_compared_is_marked() -> None:
    columns = (Column("size"), Column("time", "µs", "least"), Column("bandwidth", "GB/s", "most"))
    rows = [
        [text("a"), number(3.0), number(1.0)],
        [text("a"), number(2.0), number(4.0)],
        [text("a"), empty("no reason"), number(4.0)],
        [text("b"), number(9.0), number(9.0)],
    ]
    marked = Table(columns, rows, compared=(0,)).marked()
    assert [[cell.is_best for cell in line] for line in marked] == [
        [False, False, False],
        [False, True, True],
        [False, False, True],
        [False, False, False],  # the only one of its size
    ]


@pytest.mark.parametrize("width", [1280, 500])
def test_tables_sort_and_scroll_and_charts_fit(width: int, tmp_path: Path) -> None:
    rows = [
        row(size, algorithm, "simple", time_us)
        for size in (64, 1024, 4096, 1 << 16, 1 << 20)
        for algorithm, time_us in (("ring", 900.0), ("tree", 1100.0), ("one_shot", 80.5))
    ]
    html = page.render_report(rows, title="t")
    # The section's table, not the short one above.
    first = DRIVER.replace('("table.sortable")[0]', '("details table.sortable")[0]')
    seen = in_browser(html, first, tmp_path, width, 800)
    shown = ["900.0 · 1.000 ✓", "1100.0 · 1.000 ✓", "80.5 · 1.000 ✓"]
    assert seen["before"] == shown
    assert seen["up"] == [shown[2], shown[0], shown[1]]
    assert seen["sorted"] == "ascending"
    assert seen["down"] == [shown[1], shown[0], shown[2]]
    assert seen["overflow"] == 0
    assert (seen["broad"], seen["narrow"]) == (width > 800, width <= 800)
    assert seen["scrolls"] == (width == 500)
