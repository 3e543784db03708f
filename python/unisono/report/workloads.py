"""The report of a simulated workload."""

from typing import TYPE_CHECKING

from unisono.draw.chart import Axis, Bar, draw_bars
from unisono.draw.numbers import time_us
from unisono.report.parts import Column, Table, number, responsive, size, text
from unisono.report.simulation import part, path_tables, render_page

if TYPE_CHECKING:
    from unisono.simulate import Cluster, SimulatedWorkload

_MOST_TASKS = 1000


def report_of_workload(cluster: "Cluster", model: str, result: "SimulatedWorkload") -> str:
    """Its totals, its critical path, its algorithms, its first tasks."""
    spent = [
        ("until the last rank has ended", result.time_us),
        ("computes", result.compute_us),
        ("communicates", result.communication_us),
        ("communicates without computing", result.exposed_us),
    ]
    tables = {
        "Where rank 0's time goes": Table(
            (Column("what", is_text=True), Column("time", "µs"), Column("of the time", "%")),
            [(text(what), number(us), part(us, result.time_us)) for what, us in spent],
        )
    }
    if result.tokens_per_s > 0:
        rows = [
            (
                text("time of the last iteration (s)"),
                number(result.last_iteration_us / 1e6, ",.3f"),
            ),
            (text("tokens a second"), number(result.tokens_per_s, ",.0f")),
        ]
        if result.mfu > 0:
            rows.append((text("MFU (%)"), number(100 * result.mfu, ".1f")))
        tables["Training"] = Table((Column("what", is_text=True), Column("value")), rows)
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
    plot = responsive(lambda width: draw_bars(title, axis, bars, width=width, standalone=False))
    unseen = cluster.unseen_uplinks(model, result.nodes)
    return render_page(
        f"{result.name}, {result.ranks} ranks on {result.nodes} nodes of {cluster.name}, {model}",
        f"{cluster.file.description} {unseen}".strip(), [plot], tables,
    )  # fmt: skip
