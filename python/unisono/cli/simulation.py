"""What the commands around the simulator share."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono import _unisono as native
from unisono.cli.output import print_table, print_text, progress_console, put_json, write_file
from unisono.errors import MachineError, MisuseError
from unisono.report.simulation import Curve, Table, render_simulation

if TYPE_CHECKING:
    from unisono.simulate import Cluster, DecadeError, Error, Simulated
    from unisono.simulate.run import LinkUse

NETWORK_MODELS = ["loggops", "flows", "alpha_beta"]


def load_simulator() -> ModuleType:
    """The simulator, whose packages are an extra.

    Raises:
        MachineError: One of them is not installed.
    """
    try:
        from unisono import simulate
    except ImportError as error:
        raise MachineError(
            f"unisono simulate needs {error.name}; pip install 'unisono[simulate]' has it"
        ) from None
    return simulate


def count_progress() -> Progress:
    """A bar that counts; gone when it has ended."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=progress_console,
        transient=True,
    )


def print_errors(rows: "Sequence[DecadeError]") -> None:
    """Errors by decade of size."""
    columns = ("size", "points", "median", "90th percentile", "worst")
    print_table(
        columns,
        [
            (row.decade, row.points, f"{row.median:.1%}", f"{row.ninetieth:.1%}",
             f"{row.worst:.1%}")
            for row in rows
        ],
        right=columns[1:],
    )  # fmt: skip


def print_points(errors: "Sequence[Error]") -> None:
    """Measured and simulated times, point by point."""
    right = ("ranks", "size", "measured us", "simulated us", "error")
    print_table(
        ("algorithm", "collective", "protocol", *right),
        [
            (one.measurement.algorithm or "chosen", one.measurement.collective,
             one.measurement.protocol or "chosen", one.measurement.ranks,
             native.format_bytes(one.measurement.bytes), f"{one.measurement.time_us:.2f}",
             f"{one.simulated_us:.2f}", f"{one.relative:+.1%}")
            for one in errors
        ],
        right=right,
    )  # fmt: skip


def print_use(links: "Sequence[LinkUse]", most: int = 40) -> None:
    """What each port and link has carried, the busiest first."""
    ordered = sorted(links, key=lambda link: (-link.use, link.name))
    right = ("bytes", "GB/s", "use")
    print_table(
        ("port or link", *right),
        [(one.name, f"{one.bytes:,}", f"{one.gb_s:g}", f"{one.use:.0%}") for one in ordered[:most]],
        right=right,
    )
    if len(ordered) > most:
        print_text(f"... and {len(ordered) - most:,} that are used no more")


def check_against(
    cluster: "Cluster",
    files: Sequence[Path],
    implementation: str,
    collective: str,
    *,
    skip: Sequence[str],
    model: str,
    html: Path | None,
    json: Path | None,
) -> None:
    """Simulates what benches measured, of one collective or all, and shows how far off it is."""
    simulator = load_simulator()
    points = [
        point
        for file in files
        for point in simulator.read_measurements(file, implementation)
        if collective in ("", point.collective) and point.algorithm not in skip
    ]
    if not points:
        raise MisuseError(f"no measurement of {collective} in {', '.join(map(str, files))}")
    errors, refused = simulator.Predictor(cluster.file, model).check(points)
    if not errors:
        raise MisuseError(refused[0])
    decades = simulator.errors_by_decade(errors)
    if html is not None:
        write_file(html, _overlay(cluster, model, errors))
    document = {
        "cluster": cluster.name,
        "points": [vars(one.measurement) | {"simulated_us": one.simulated_us} for one in errors],
        "errors": [vars(row) for row in decades],
        "refused": refused,
    }
    if put_json(json, document):
        return
    print_points(errors)
    print_text("")
    print_errors(decades)
    for why in refused:
        print_text(why)


def report_of(cluster: "Cluster", model: str, results: "Sequence[Simulated]") -> str:
    """The report of a sweep: time by size of every algorithm, for each number of ranks."""
    curves: dict[str, dict[str, Curve]] = {}
    for one in sorted(results, key=lambda one: one.size_bytes):
        plot = curves.setdefault(f"{one.collective} on {one.ranks} ranks", {})
        name = f"{one.algorithm} {one.protocol}"
        plot.setdefault(name, Curve(name)).points.append((one.size_bytes, one.time_us))
    rows = [
        (one.algorithm, one.collective, one.protocol, str(one.ranks),
         native.format_bytes(one.size_bytes), f"{one.time_us:.2f}", f"{one.busbw_gb_s:.2f}",
         f"{one.closed_form_us:.2f}", f"{one.nic_use:.0%}")
        for one in results
    ]  # fmt: skip
    columns = ("algorithm", "collective", "protocol", "ranks", "size", "time us", "busbw GB/s",
               "closed form us", "NIC use")  # fmt: skip
    links = [
        (one.name, f"{one.bytes:,}", f"{one.gb_s:g}", f"{one.use:.0%}")
        for one in sorted(results[0].links, key=lambda link: -link.use)[:100]
    ]
    tables: dict[str, Table] = {
        "Results": (columns, rows),
        f"Ports and links of {results[0].algorithm}": (("port or link", "bytes", "GB/s", "use"),
                                                       links),
    }  # fmt: skip
    return render_simulation(
        f"{cluster.name}, {model}", cluster.file.description,
        {title: list(plot.values()) for title, plot in curves.items()}, tables,
    )  # fmt: skip


def _overlay(cluster: "Cluster", model: str, errors: "Sequence[Error]") -> str:
    simulator = load_simulator()
    curves: dict[str, dict[str, Curve]] = {}
    for error in sorted(errors, key=lambda error: error.measurement.bytes):
        one = error.measurement
        plot = curves.setdefault(f"{one.collective} on {one.ranks} ranks", {})
        on = f" x{one.channels}" if one.channels else ""
        name = f"{one.algorithm or 'chosen'} {one.protocol}{on}"
        for kind, time_us in (("simulated", error.simulated_us), ("measured", one.time_us)):
            curve = Curve(f"{name}, {kind}", kind == "measured")
            plot.setdefault(curve.name, curve).points.append((one.bytes, time_us))
    rows = [
        (error.measurement.describe(), f"{error.measurement.time_us:.2f}",
         f"{error.simulated_us:.2f}", f"{error.relative:+.1%}")
        for error in errors
    ]  # fmt: skip
    decades = [
        (row.decade, str(row.points), f"{row.median:.1%}", f"{row.ninetieth:.1%}",
         f"{row.worst:.1%}")
        for row in simulator.errors_by_decade(errors)
    ]  # fmt: skip
    tables: dict[str, Table] = {
        "Errors by decade of size": (
            ("size", "points", "median", "90th percentile", "worst"), decades,
        ),
        "Points": (("what", "measured us", "simulated us", "error"), rows),
    }  # fmt: skip
    return render_simulation(
        f"{cluster.name}, {model}, against measurements", cluster.file.description,
        {title: list(plot.values()) for title, plot in curves.items()}, tables,
    )  # fmt: skip
