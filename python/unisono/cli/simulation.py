"""What the commands around the simulator share."""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono import _unisono as native
from unisono.cli.output import print_table, progress_console
from unisono.errors import MachineError

if TYPE_CHECKING:
    from unisono.simulate import DecadeError, Error

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
