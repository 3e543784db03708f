"""The report: complete, and it needs nothing from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from unisono import plans
from unisono.bench.rows import Row
from unisono.draw import draw_plan
from unisono.report import Drawing, Training, page, write_report

VOID = {"meta", "link", "br", "img", "input", "hr"}


def row(collective: str, size: int, algorithm: str = "ring", wrong: int = 0) -> Row:
    busbw = size / 1e6
    return Row(
        collective, size, "float32", 8, 2, "unisono", algorithm, "simple", 10.5, 0.1, busbw, wrong
    )


ROWS = [
    row("all_reduce", 8),
    row("all_reduce", 1024),
    row("all_reduce", 1024, "tree"),
    row("all_gather", 4096, wrong=3),
    row("barrier", 0),
]
CURVES = {
    name: {"loss": [2.0, 1.0, 0.5], "accuracy": [0.5, 0.8, 0.97]}
    for name in ("one process", "all_reduce", "sharded")
}
TRAINING = Training(8, 2, 60, 64, 1e-9, {"all_reduce": 1e-15, "sharded": 2e-3}, True, False, CURVES)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(4))
    drawing = Drawing("ring_all_reduce", draw_plan(plan, standalone=False), "Round & round.")
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    write_report(path, ROWS, title="A <title>", drawings=[drawing], training=TRAINING)
    return path.read_text(encoding="utf-8")


class Checker(HTMLParser):
    """Whether tags match, and what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "data", "action", "srcset"):
                self.references.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_refers_to_nothing_outside(html: str) -> None:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert checker.references == []
    assert "<script>" in html
    assert "<script src" not in html
    assert "link" not in checker.tags
    assert "http" not in html
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


def test_every_picture_is_well_formed(html: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    # One plan; in two widths: two collectives that have sizes, loss and accuracy.
    assert len(pictures) == 1 + 2 * 4
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_the_page_is_readable_in_light_and_dark(html: str) -> None:
    assert "color-scheme: light dark" in html
    assert html.count("prefers-color-scheme: dark") == 2


def test_wrong_results_are_told_and_counted(html: str) -> None:
    assert "✗ 3" in html
    assert '<b class="bad">1</b>wrong' in html
    assert 'all_gather: <span class="bad">1 wrong</span>' in html
    assert 'all_reduce: <span class="good">all right</span>' in html


def test_weights_beyond_the_bound_are_told(html: str) -> None:
    assert re.search(r'class="bad"[^>]*>2.0e-03 ✗', html)
    assert re.search(r'class="good"[^>]*>1.0e-15 ✓', html)


def test_texts_are_escaped(html: str) -> None:
    assert "<title>A &lt;title&gt;</title>" in html
    assert "Round &amp; round." in html


def test_a_page_of_rows_alone_has_no_other_sections(tmp_path: Path) -> None:
    text = page.render_report(ROWS, title="t")
    assert "Plans</h2>" not in text
    assert "digits" not in text
    assert "Machine</h2>" in text


def test_a_page_without_rows_can_be_written() -> None:
    assert "Results</h2>" not in page.render_report([], title="t")
