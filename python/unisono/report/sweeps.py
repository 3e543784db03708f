"""Reports of simulated collectives: a sweep, and simulations against measurements."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.draw.look import dash_of
from unisono.report.parts import Cell, Column, Table, empty, number, size, text
from unisono.report.simulation import Curve, path_tables, render_simulation

if TYPE_CHECKING:
    from unisono.simulate import Cluster, DecadeError, Error, Job, Simulated

_MOST_LINKS = 100
# More lines of one plot cannot be distinguished.
_MOST_LINES = 16


def report_of_sweep(
    cluster: "Cluster",
    model: str,
    collective: str,
    results: "Sequence[Simulated]",
    refused: "Sequence[tuple[Job, str]]" = (),
) -> str:
    """Time by size of every algorithm, for each number of ranks; the fastest's critical path.

    Args:
        cluster: Where.
        model: The model of the network.
        collective: Which one.
        results: The fastest of each size and number of ranks first.
        refused: What could not be simulated, and why.
    """
    first = results[0]
    tables = {"Results": _results(results, refused)}
    what = f"{first.algorithm} {first.protocol}, {size(first.size_bytes).text}"
    tables |= path_tables(first, f" of {what}")
    links = sorted(first.links, key=lambda link: -link.use)[:_MOST_LINKS]
    tables[f"Ports and links of {first.algorithm}"] = Table(
        (Column("port or link", is_text=True), Column("carried", "bytes"),
         Column("bandwidth", "GB/s"), Column("use", "%")),
        [(text(link.name), number(link.bytes, ",d"), number(link.gb_s, "g"),
          number(100 * link.use, ".0f")) for link in links],
    )  # fmt: skip
    unseen = cluster.unseen_uplinks(model, max(one.nodes for one in results))
    return render_simulation(
        f"{collective} on {cluster.name}, {model}", f"{cluster.file.description} {unseen}".strip(),
        _plots(results), tables,
    )  # fmt: skip


def _plots(results: "Sequence[Simulated]") -> dict[str, list[Curve]]:
    """Time by size; of very many lines only the best protocol of each algorithm."""
    plots: dict[str, list[Curve]] = {}
    for ranks in sorted({one.ranks for one in results}):
        own = [one for one in results if one.ranks == ranks]
        is_oversubscribed = len({(one.algorithm, one.protocol) for one in own}) > _MOST_LINES
        curves: dict[str, Curve] = {}
        fastest: dict[tuple[str, int], float] = {}
        for one in own:
            name = one.algorithm if is_oversubscribed else f"{one.algorithm} {one.protocol}"
            dash = 0 if is_oversubscribed else dash_of(one.protocol)
            curves.setdefault(name, Curve(name, one.algorithm, dash))
            before = fastest.get((name, one.size_bytes), one.time_us)
            fastest[name, one.size_bytes] = min(before, one.time_us)
        for (name, bytes), time_us in sorted(fastest.items()):  # noqa: A001
            curves[name].points.append((bytes, time_us))
        title = f"{own[0].collective} on {ranks} ranks"
        if is_oversubscribed:
            title += ", with the best protocol"
        plots[title] = list(curves.values())
    return plots


def _results(results: "Sequence[Simulated]", refused: "Sequence[tuple[Job, str]]") -> Table:
    columns = (
        Column("ranks"), Column("size"), Column("algorithm", is_text=True),
        Column("protocol", is_text=True), Column("time", "µs", "least"),
        Column("bus bandwidth", "GB/s", "most"), Column("closed form", "µs"),
        Column("port use", "%"), Column("NIC use", "%"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (number(one.ranks, "d"), size(one.size_bytes), text(one.algorithm), text(one.protocol),
         number(one.time_us), number(one.busbw_gb_s), number(one.closed_form_us),
         number(100 * one.node_port_use, ".0f"),
         number(100 * one.nic_use, ".0f") if one.nodes > 1
         else empty("all ranks are on one node, where no NIC is used"))
        for one in results
    ]  # fmt: skip
    rows += [
        (number(job.ranks, "d"), size(job.size_bytes), text(job.algorithm), text(job.protocol),
         *[empty(why)] * 5)
        for job, why in refused
    ]  # fmt: skip
    note = "The best of each size and number of ranks is marked."
    if refused:
        reasons = dict.fromkeys(f"{job.algorithm}: {why}" for job, why in refused)
        note += f" Empty rows could not be simulated. {'. '.join(list(reasons)[:8])}."
    return Table(columns, rows, compared=(0, 1), note=note)


def report_of_errors(
    cluster: "Cluster",
    model: str,
    errors: "Sequence[Error]",
    decades: "Sequence[DecadeError]",
) -> str:
    """What was measured, and what was simulated for it."""
    curves: dict[str, dict[str, Curve]] = {}
    for error in sorted(errors, key=lambda error: error.measurement.bytes):
        one = error.measurement
        plot = curves.setdefault(f"{one.collective} on {one.ranks} ranks", {})
        on = f" x{one.channels}" if one.channels else ""
        name = f"{one.algorithm or 'automatic'} {one.protocol}".strip() + on
        for kind, time_us in (("simulated", error.simulated_us), ("measured", one.time_us)):
            is_measured = kind == "measured"
            of = one.algorithm or "measured"
            curve = Curve(f"{name}, {kind}", of, dash_of(one.protocol), is_measured)
            plot.setdefault(curve.name, curve).points.append((one.bytes, time_us))
    points = Table(
        (Column("collective", is_text=True), Column("algorithm", is_text=True),
         Column("protocol", is_text=True), Column("channels"), Column("ranks"), Column("size"),
         Column("measured", "µs"), Column("simulated", "µs"), Column("error", "%")),
        [
            (text(error.measurement.collective), text(error.algorithm), text(error.protocol),
             number(error.channels, "d"), number(error.measurement.ranks, "d"),
             size(error.measurement.bytes), number(error.measurement.time_us),
             number(error.simulated_us), number(100 * error.relative, "+.1f"))
            for error in errors
        ],
        note=NOT_MEASURED if any(error.is_guessed for error in errors) else "",
    )  # fmt: skip
    of_decades = Table(
        (Column("size", is_text=True), Column("points"), Column("median", "%"),
         Column("90th percentile", "%"), Column("worst", "%")),
        [
            (text(row.decade), number(row.points, "d"), number(100 * row.median, ".1f"),
             number(100 * row.ninetieth, ".1f"), number(100 * row.worst, ".1f"))
            for row in decades
        ],
    )  # fmt: skip
    unseen = cluster.unseen_uplinks(model, max(error.measurement.nodes for error in errors))
    return render_simulation(
        f"{cluster.name}, {model}, against measurements",
        f"{cluster.file.description} {unseen}".strip(),
        {title: list(plot.values()) for title, plot in curves.items()},
        {"Errors by decade of size": of_decades, "Points": points},
    )  # fmt: skip


NOT_MEASURED = "* The library chose, and the measurement does not say what: so it was simulated."
