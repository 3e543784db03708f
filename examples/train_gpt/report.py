"""A page of its own for one or more runs: losses, numbers, and what the ranks said when."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unisono.draw.chart import Axis, Series, draw_chart
from unisono.draw.look import look_of
from unisono.draw.svg import STYLE

_WIDTH, _ROW, _MARGIN = 1040, 22, 32
_SHOWN_SECONDS = 0.5
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier")
_STYLE = (
    """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d5dae1 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --paper: #14181d; --line: #3b434e } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em;
  color: var(--ink); background: var(--paper) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .25em .8em; border-bottom: 1px solid var(--line); text-align: right }
td:first-child, th:first-child { text-align: left }
svg { max-width: 100%; height: auto; min-width: 34em }
text { font: 12px system-ui, sans-serif; fill: var(--ink) }
figure { margin: 1em 0 } span.key { padding: 0 .6em; color: #fff; margin-right: .5em }
"""
    + STYLE
)


def write_report(path: Path, sets: Sequence[Sequence[dict[str, Any]]], note: str = "") -> None:
    """Writes the page: the sets of results next to each other."""
    title = "Training a small GPT"
    body = [f"<h1>{title}</h1>"]
    if note:
        body.append(f"<p>{html.escape(note)}</p>")
    for results in sets:
        name = " and ".join(name_of(one) for one in results)
        body.append(f'<h2>{html.escape(name)}</h2><div class="wide">{_table(results)}</div>')
        body.append(f'<figure class="wide">{_losses(results)}</figure>')
        for one in results:
            body.append(f"<h3>Communication: {html.escape(name_of(one))}</h3>{_timeline(one)}")
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    path.write_text(f'<!doctype html><html lang="en">{head}{"".join(body)}</html>\n')


def name_of(result: dict[str, Any]) -> str:
    """A run's backend and parallelism."""
    return f"{result['backend']} {result['parallel']}"


def _table(results: Sequence[dict[str, Any]]) -> str:
    rows = [
        ("ranks", lambda one: str(one["ranks"])),
        ("parameters", lambda one: f"{one['parameters']:,}"),
        ("steps", lambda one: str(len(one["losses"]))),
        ("last loss (nats a byte)", lambda one: f"{one['losses'][-1][1]:.5f}"),
        ("loss on unseen text", lambda one: f"{one['tested_loss']:.5f}"),
        ("tokens/s", lambda one: f"{one['tokens_per_second']:,.0f}"),
        ("communication in a step (ms)", lambda one: f"{1e3 * one['communication_seconds']:.2f}"),
        ("share of the time", lambda one: f"{one['communication_share']:.1%}"),
    ]
    head = "".join(f"<th>{html.escape(name_of(one))}</th>" for one in results)
    lines = [
        f"<tr><td>{label}</td>{''.join(f'<td>{write(one)}</td>' for one in results)}</tr>"
        for label, write in rows
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(lines)}</table>"


def _losses(results: Sequence[dict[str, Any]]) -> str:
    series = [
        Series(name_of(one), [tuple(point) for point in one["losses"]], dash=index)
        for index, one in enumerate(results)
    ]
    return draw_chart("Loss", Axis("step"), Axis("nats a byte"), series, standalone=False)


def _timeline(result: dict[str, Any]) -> str:
    """The first part of the recorded steps: a row for each rank, a bar for each collective."""
    ranks = result["timeline"]
    if not any(ranks):
        return "<p>The run was too short for a recording.</p>"
    shown = min(_SHOWN_SECONDS, max(call[2] for calls in ranks for call in calls))
    left, height = 60, _ROW * len(ranks) + 30
    scale = (_WIDTH - left - _MARGIN) / shown
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for rank, calls in enumerate(ranks):
        y = rank * _ROW + 4
        parts.append(f'<text x="0" y="{y + 13}">rank {rank}</text>')
        for name, start, end in calls:
            if start > shown:
                break
            width = max(0.6, (min(end, shown) - start) * scale)
            parts.append(
                f'<rect x="{left + start * scale:.2f}" y="{y}" width="{width:.2f}" '
                f'height="{_ROW - 6}" fill="{_colour(name)}" fill-opacity=".8">'
                f"<title>{html.escape(name)}, {1e3 * start:.2f} to {1e3 * end:.2f} ms</title>"
                "</rect>"
            )
    for tick in range(6):
        at = shown * tick / 5
        parts.append(
            f'<text x="{left + at * scale:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{1e3 * at:.0f} ms</text>"
        )
    names = sorted({call[0] for calls in ranks for call in calls})
    keys = "".join(
        f'<span class="key" style="background:{_colour(name)}">{html.escape(name)}</span>'
        for name in names
    )
    return f'<p>{keys}</p><div class="wide">{"".join(parts)}</svg></div>'


def _colour(name: str) -> str:
    """Of the collective that a call's name has in it, or else of the name."""
    return look_of(next((one for one in _COLLECTIVES if one in name), name)).colour
