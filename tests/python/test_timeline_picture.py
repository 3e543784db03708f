"""Pictures of time lines: rows in order, bars in proportion, colours that differ."""

import re

from unisono.draw.timeline import Span, draw_timeline


def bars(svg: str) -> list[tuple[float, float, str]]:
    """Where each bar begins, how wide it is, and its colour."""
    found = []
    for text in re.findall(r"<rect [^>]*class=\"bar\"[^>]*>", svg):
        x, width, colour = (
            re.search(rf'\b{name}="([^"]+)"', text)[1]  # type: ignore[index]
            for name in ("x", "width", "fill")
        )
        found.append((float(x), float(width), colour))
    return found


def test_bars_are_as_long_as_what_they_show() -> None:
    spans = [Span("a", "first", 0.0, 1.0), Span("b", "second", 1.0, 4.0, label="2")]
    (x1, width1, _), (x2, width2, _) = bars(draw_timeline("picture", spans))
    assert (width2 + 0.5) / (width1 + 0.5) - 3 < 0.02
    assert abs(x2 - (x1 + width1 + 0.5)) < 0.02


def test_rows_are_in_the_order_in_which_they_come_and_named_once() -> None:
    spans = [Span(row, "task", i, i + 1.0) for i, row in enumerate(["z", "a", "z", "m"])]
    svg = draw_timeline("picture", spans, note="what colours mean")
    rows = re.findall(r'class="chart-name">(\w)</text>', svg)
    assert rows == ["z", "a", "m"]
    assert "what colours mean" in svg
    assert "<title>task: 3 s to 4 s</title>" in svg


def test_fourteen_kinds_have_colours_of_their_own() -> None:
    spans = [Span("row", "task", i, i + 1.0, of=f"chunk {i}") for i in range(14)]
    assert len({colour for *_, colour in bars(draw_timeline("picture", spans))}) == 14


def test_names_that_are_markup_stay_text() -> None:
    svg = draw_timeline("<b>", [Span("<row>", "<i>", 0.0, 1.0, label="<u>")])
    assert "<b>" not in svg
    assert "&lt;row&gt;" in svg
