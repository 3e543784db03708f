"""What the commands around the simulator share."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from unisono import _unisono as native
from unisono.cli.output import print_table, print_text, put_json, write_file
from unisono.cli.watch import Counted
from unisono.errors import MisuseError
from unisono.extras import missing_extra
from unisono.report.sweeps import NOT_MEASURED, report_of_errors

if TYPE_CHECKING:
    from unisono.simulate import Cluster, DecadeError, Error
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
        raise missing_extra("unisono simulate", str(error.name), "simulate") from None
    return simulate


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
    right = ("channels", "ranks", "size", "measured us", "simulated us", "error")
    print_table(
        ("algorithm", "collective", "protocol", *right),
        [
            (one.algorithm, one.measurement.collective, one.protocol, one.channels,
             one.measurement.ranks,
             native.format_bytes(one.measurement.bytes), f"{one.measurement.time_us:.2f}",
             f"{one.simulated_us:.2f}", f"{one.relative:+.1%}")
            for one in errors
        ],
        right=right,
        folds=("collective", "protocol", "ranks"),
        keys=5,
    )  # fmt: skip
    if any(one.is_guessed for one in errors):
        print_text(NOT_MEASURED)


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


def print_unseen(cluster: "Cluster", model: str, nodes: int) -> None:
    """Says which uplinks a model does not see."""
    if unseen := cluster.unseen_uplinks(model, nodes):
        print_text(f"\n{unseen}")


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
    with Counted("simulating", len(points)) as counted:
        errors, refused = simulator.Predictor(cluster.file, model).check(points, counted.advance)
    if not errors:
        raise MisuseError(refused[0])
    decades = simulator.errors_by_decade(errors)
    if html is not None:
        write_file(html, report_of_errors(cluster, model, errors, decades))
    nodes = max(one.measurement.nodes for one in errors)
    document = {
        "cluster": cluster.name,
        "unseen": cluster.unseen_uplinks(model, nodes),
        "points": [
            vars(one.measurement)
            | {"simulated_us": one.simulated_us, "simulated": vars(one.simulated)}
            for one in errors
        ],
        "errors": [vars(row) for row in decades],
        "refused": refused,
    }
    if put_json(json, document, "simulate-errors"):
        return
    print_points(errors)
    print_text("")
    print_errors(decades)
    for why in refused:
        print_text(why)
    print_text(f"\nThe event simulator's {model} on {cluster.name}")
    print_unseen(cluster, model, nodes)
