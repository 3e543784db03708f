"""NCCL on a machine, whether it was measured or not: `unisono simulate --implementation nccl`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono.cli.output import (
    parse_rank_list,
    parse_size,
    print_table,
    print_text,
    put_json,
    write_file,
)
from unisono.cli.simulation import load_simulator
from unisono.errors import MisuseError
from unisono.names import check_names
from unisono.report.nccl import notes_of, report_of_nccl, why

_COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def simulate_nccl(
    collective: str,
    machine: str,
    ranks: str,
    nodes: int,
    sizes: list[str],
    html: Path | None,
    json: Path | None,
    *,
    algorithms: Sequence[str] = (),
    protocols: Sequence[str] = (),
    explain: bool = False,
) -> None:
    """What NCCL chooses, why, how long it takes, and how far off that may be.

    Args:
        collective: "all_reduce" and so on.
        machine: A machine's name or file.
        ranks: As 8, 2..64 or 8,16,2048.
        nodes: 0: as few as hold the ranks.
        sizes: With units.
        html: Where a page goes, if anywhere.
        json: Where to; None: a table.
        algorithms: Each is forced in turn; ["all"]: all that NCCL can take. Empty: NCCL chooses.
        protocols: The same.
        explain: Also show what the time of the fastest consists of.

    Raises:
        MisuseError: The machine cannot run it, there is no such machine, or NCCL can run none of
            the calls as they are forced.
    """
    load_simulator()
    from unisono.simulate import nccl

    check_names("collective", [collective], _COLLECTIVES)
    every = list(algorithms) == ["all"]
    found = nccl.find_machine(machine)
    local = int(found.hardware.ranks_per_node.value)
    calls = [
        nccl.Call(collective, parse_size(size, "--size"), count, nodes or -(-count // local))
        for count in parse_rank_list(ranks)
        for size in sizes
    ]
    ways = [
        (algorithm, protocol)
        for algorithm in _asked("algorithm", algorithms, (*nccl.ALGORITHMS, "point_to_point"))
        for protocol in _asked("protocol", protocols, nccl.PROTOCOLS)
    ]
    predictions, refused = [], []
    for call in calls:
        here = []
        for way in ways:
            try:
                here.append(nccl.forced(found, call, *way))
            except MisuseError as error:
                refused.append(str(error))
        predictions += sorted(here, key=lambda one: one.time_us)
    if not predictions:
        raise MisuseError(refused[0])
    if html is not None:
        write_file(html, report_of_nccl(found, predictions))
    fastest = predictions[0]
    parts = nccl.parts_us(found, fastest) if explain else {}
    document = {
        "machine": found.name,
        "fitted": found.calibration is not None,
        "results": [_row(one) for one in predictions],
        "refused": [] if every else refused,
        "parts_us": parts,
    }
    if put_json(json, document, "simulate-nccl"):
        return
    right = ("ranks", "nodes", "size", "time\nus", "from", "to")
    print_table(
        ("algorithm", "protocol", *right, "NCCL's own estimate for the best\nus"),
        [
            (one.choice.algorithm, one.choice.protocol, one.call.ranks, one.call.nodes,
             native.format_bytes(one.call.bytes), f"{one.time_us:.1f}", f"{one.low_us:.1f}",
             f"{one.high_us:.1f}", why(one))
            for one in predictions
        ],
        right=right,
        folds=("ranks", "nodes"),
    )  # fmt: skip
    if parts:
        print_text(
            f"\n{fastest.choice.algorithm} with {fastest.choice.protocol}, "
            f"{native.format_bytes(fastest.call.bytes)} on {fastest.call.ranks} ranks"
        )
        print_table(
            ("part", "us", "of the time"),
            [(name, f"{us:.1f}", f"{us / fastest.time_us:.0%}") for name, us in parts.items()],
            right=("us", "of the time"),
        )
    # Most algorithms cannot run a given call: where all are asked for, that is no news.
    for sentence in [] if every else refused:
        print_text(sentence)
    for note in notes_of(found, predictions):
        print_text(f"\n{note}")


def _asked(what: str, names: Sequence[str], known: Sequence[str]) -> list[str | None]:
    """What is forced in turn; None: NCCL chooses."""
    if list(names) == ["all"]:
        return list(known)
    check_names(what, names, list(known))
    return list(names) or [None]


def _row(one: Any) -> dict[str, Any]:
    return {
        "collective": one.call.collective,
        "ranks": one.call.ranks,
        "nodes": one.call.nodes,
        "size_bytes": one.call.bytes,
        "algorithm": one.choice.algorithm,
        "protocol": one.choice.protocol,
        "time_us": one.time_us,
        "low_us": one.low_us,
        "high_us": one.high_us,
        "nccl_estimates_us": {
            f"{choice.algorithm}/{choice.protocol}": us for choice, us in one.why
        },
    }


def check_nccl(
    machine: str, files: list[Path], collective: str, html: Path | None, json: Path | None
) -> None:
    """Measured times of NCCL, all-to-alls too, and what is predicted for them.

    Raises:
        MisuseError: There is no such machine, or no measurement.
    """
    load_simulator()
    from unisono.simulate import nccl

    found = nccl.find_machine(machine)
    points = [
        point
        for file in files
        for point in nccl.read_points(file, found)
        if collective in ("", point.call.collective)
    ]
    if not points:
        raise MisuseError(f"no measurement of {collective} in {', '.join(map(str, files))}")
    pairs = [(point, nccl.predict(found, point.call, point.choice)) for point in points]
    if html is not None:
        page = report_of_nccl(found, [one for _, one in pairs], [one.time_us for one, _ in pairs])
        write_file(html, page)
    document = {
        "machine": found.name,
        "fitted": found.calibration is not None,
        "points": [
            _row(one) | {"measured_us": point.time_us, "error": one.time_us / point.time_us - 1}
            for point, one in pairs
        ],
    }
    if put_json(json, document, "simulate-nccl-errors"):
        return
    right = ("ranks", "size", "measured us", "predicted us", "error", "in interval")
    print_table(
        ("algorithm", "collective", "protocol", *right),
        [
            (one.choice.algorithm, one.call.collective, one.choice.protocol, one.call.ranks,
             native.format_bytes(one.call.bytes), f"{point.time_us:.1f}", f"{one.time_us:.1f}",
             f"{one.time_us / point.time_us - 1:+.1%}",
             "yes" if one.low_us <= point.time_us <= one.high_us else "no")
            for point, one in pairs
        ],
        right=right,
        folds=("collective", "ranks"),
    )  # fmt: skip
    off = sorted(abs(one.time_us / point.time_us - 1) for point, one in pairs)
    print_text(
        f"\nNCCL's model of {found.name}: median error {off[len(off) // 2]:.1%}, 90th "
        f"{off[len(off) * 9 // 10]:.1%}"
    )


def calibrate_nccl(
    files: list[Path], machine: str, output: Path | None, ranks: int, nodes: int, json: Path | None
) -> None:
    """Fits a machine's calibration to what nccl-tests or our bench measured.

    Raises:
        MisuseError: There is no such machine, or nothing to fit.
    """
    load_simulator()
    from unisono.simulate import nccl

    found = nccl.find_machine(machine)
    points = [
        point for file in files for point in nccl.read_points(file, found, ranks=ranks, nodes=nodes)
    ]
    done = nccl.calibrate_machine(found, points, [str(file) for file in files])
    if output is not None:
        write_file(output, nccl.machine_to_yaml(done.machine))
    document = {
        "machine": found.name,
        "points": len(points),
        "before": done.before,
        "held_back": done.held,
        "factors": done.machine.calibration.factors if done.machine.calibration else {},
        "measure_next": [
            {
                "collective": call.collective, "ranks": call.ranks, "nodes": call.nodes,
                "size_bytes": call.bytes, "uncertainty_left": left,
            }
            for call, left in done.next_points
        ],
    }  # fmt: skip
    if put_json(json, document, "calibrate-nccl"):
        return
    print_text(
        f"{len(points)} points of {found.name}. Median error before: {done.before:.1%}; on points "
        f"held back from the fit: {done.held:.1%}.\n"
    )
    right = ("ranks", "nodes", "size", "uncertainty left")
    print_table(
        ("measure next", *right),
        [
            (
                call.collective,
                call.ranks,
                call.nodes,
                native.format_bytes(call.bytes),
                f"{left:.1%}",
            )
            for call, left in done.next_points
        ],
        right=right,
    )
