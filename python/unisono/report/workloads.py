"""The report of a simulated workload."""

from typing import TYPE_CHECKING

from unisono.draw.chart import Axis, Bar, draw_bars
from unisono.draw.numbers import time_us
from unisono.draw.timeline import Span, draw_timeline
from unisono.report.parts import Column, Table, number, responsive, size, text
from unisono.report.simulation import part, path_tables, render_page

if TYPE_CHECKING:
    from unisono.simulate import SimulatedWorkload

_MOST_TASKS = 1000
# A browser shows so many bars without delay; of longer workloads the beginning is shown.
_MOST_SPANS = 4000


def report_of_workload(cluster: str, about: str, model: str, result: "SimulatedWorkload") -> str:
    """Its speed, its totals, its time line, its critical path, its algorithms, its first tasks.

    Args:
        cluster: The name of the cluster or machine.
        about: What it is, and what its model does not see.
        model: The model of the network.
        result: What was simulated.
    """
    spent = [
        ("until the last rank has ended", result.time_us),
        ("computes", result.compute_us),
        ("communicates", result.communication_us),
        ("communicates without computing", result.exposed_us),
    ]
    tables = {}
    if result.tokens_per_s > 0:
        tables["Training"] = _training(result)
    tables["Where rank 0's time goes"] = Table(
        (Column("what", is_text=True), Column("time", "s"), Column("of the time", "%")),
        [
            (text(what), number(us / 1e6, ",.4g"), part(us, result.time_us))
            for what, us in spent
        ],
    )  # fmt: skip
    if any(one.communicator for one in result.tasks):
        tables["Cost by communicator"] = _by_communicator(result)
    tables |= path_tables(result)
    if result.algorithms:
        tables["Collectives"] = Table(
            (Column("communicator", is_text=True), Column("collective", is_text=True),
             Column("size"), Column("algorithm", is_text=True)),
            [(text(over), text(collective), size(bytes), text(algorithm))
             for over, collective, bytes, algorithm in result.algorithms],  # noqa: A001
        )  # fmt: skip
    shown = result.tasks[:_MOST_TASKS]
    tables["Tasks of rank 0"] = Table(
        (Column("task", is_text=True), Column("stream", is_text=True), Column("began", "µs"),
         Column("took", "µs")),
        [(text(one.name), text(one.stream), number(one.began_us),
          number(one.ended_us - one.began_us)) for one in shown],
        note=f"The first {len(shown):,} of {len(result.tasks):,}."
        if len(shown) < len(result.tasks) else "",
    )  # fmt: skip
    shares = sorted(result.shares.items(), key=lambda share: -share[1])
    bars = [Bar(what, us) for what, us in (shares or spent) if us > 0]
    title = "Critical path" if shares else "Where rank 0's time goes"
    axis = Axis("time", write=time_us)
    plots = [responsive(lambda width: draw_bars(title, axis, bars, width=width, standalone=False))]
    if result.tasks:
        plots.append(_timeline(result))
    return render_page(
        f"{result.name}, {result.ranks} ranks on {result.nodes} nodes of {cluster}, {model}",
        about.strip(), plots, tables,
    )  # fmt: skip


def _training(result: "SimulatedWorkload") -> Table:
    rows = []
    if result.mfu > 0:
        rows.append((text("MFU (%)"), number(100 * result.mfu, ".1f")))
    seconds = number(result.last_iteration_us / 1e6, ",.3f")
    rows.append((text("time of the last iteration (s)"), seconds))
    if result.high_us > 0:
        rows.append((text("all iterations, from (s)"), number(result.low_us / 1e6, ",.3f")))
        rows.append((text("all iterations, to (s)"), number(result.high_us / 1e6, ",.3f")))
    rows.append((text("tokens a second"), number(result.tokens_per_s, ",.0f")))
    return Table((Column("what", is_text=True), Column("value")), rows)


def _by_communicator(result: "SimulatedWorkload") -> Table:
    """Calls and time of rank 0, by communicator; messages between two ranks have a row, too."""
    spent: dict[str, tuple[int, float]] = {}
    for one in result.tasks:
        if one.kind != "compute":
            name = one.communicator or "messages"
            calls, us = spent.get(name, (0, 0.0))
            spent[name] = (calls + 1, us + one.ended_us - one.began_us)
    return Table(
        (Column("communicator", is_text=True), Column("calls"), Column("time", "s"),
         Column("of the time", "%")),
        [
            (text(name), number(calls, ",d"), number(us / 1e6, ",.4g"), part(us, result.time_us))
            for name, (calls, us) in sorted(spent.items(), key=lambda one: -one[1][1])
        ],
        note="Times of calls are added up, also where they overlap with computing.",
    )  # fmt: skip


def _timeline(result: "SimulatedWorkload") -> str:
    shown = result.tasks[:_MOST_SPANS]
    title = "Streams of rank 0"
    if len(shown) < len(result.tasks):
        title = f"Streams of rank 0: the first {len(shown):,} of {len(result.tasks):,} tasks"
    spans = [Span(one.stream, one.name, one.began_us / 1e6, one.ended_us / 1e6) for one in shown]
    return responsive(lambda width: draw_timeline(title, spans, width=width, standalone=False))
