"""Fits a cluster's numbers to measurements, and says how far off it is on others.

Half of the points are fitted, the other half held back. The simulator itself is in the loop: the
numbers are those with which its times, not some formula's, come closest to the measured ones. The
relative errors are minimised by a trust-region method (scipy's least_squares), with a loss that
grows linearly for outliers, over the logarithms of the numbers: they stay above 0, and a change by
a tenth counts alike in all of them.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.extras import missing_extra
from unisono.simulate.cluster import Cluster, ClusterFile, number_at, with_numbers
from unisono.simulate.measurements import Measurement
from unisono.simulate.predict import Error, Predictor

Array = npt.NDArray[np.float64]

# Durations below this start here: from near 0 the logarithm finds no way up.
_LEAST_NS = 1000.0
# Where a number starts that is 0 in the file, which means that it costs nothing.
_NOTHING = {"ns": _LEAST_NS, "GB/s": 100.0, "B": 1.0, "": 1.0}
# Numbers that the points do not determine stay near where they began.
_PULL = 0.01
# Errors beyond count linearly.
_OUTLIER = 0.05
# How far a number may move: by this factor each way.
_MOST_CHANGE = 300.0


@dataclass(frozen=True)
class Calibration:
    """A fitted cluster.

    Attributes:
        file: The cluster's file with the fitted numbers.
        values: The fitted numbers by place, as they were asked for: ns, GB/s or bytes.
        before: What they were.
        fitted: Errors of the points that were fitted.
        held: Errors of those that were not.
    """

    file: ClusterFile
    values: dict[str, float]
    before: dict[str, float]
    fitted: list[Error]
    held: list[Error]

    @property
    def units(self) -> dict[str, str]:
        """The units of the numbers, by place."""
        return {place: number_at(self.file, _spread(place)[0]).unit for place in self.values}


def split(measurements: Sequence[Measurement]) -> tuple[list[Measurement], list[Measurement]]:
    """Half to fit and half to hold back: every second one, by size within each algorithm."""

    def key(one: Measurement) -> tuple[object, ...]:
        return (one.collective, one.algorithm, one.protocol, one.ranks, one.nodes, one.channels,
                one.bytes)  # fmt: skip

    ordered = sorted(measurements, key=key)
    return ordered[::2], ordered[1::2]


def numbers_to_fit(cluster: Cluster, measurements: Sequence[Measurement]) -> list[str]:
    """The places of the numbers on which the measured times depend.

    What the points cannot tell apart is one number: the hop's latency and both ends' overheads are
    told apart only where a thread block works on several messages, so the sender's is left out. A
    thread block moves as many bytes in every protocol, flags counted: one number, too.
    """
    between = any(one.nodes > 1 for one in measurements)
    inside = any(one.ranks > one.nodes for one in measurements)
    used = {one.protocol for one in measurements}
    protocols = [name for name in ("simple", "ll", "ll128") if name in used or "" in used]
    ways = ["inside"] * inside + ["between"] * between
    places = [f"protocols.{name}.launch" for name in protocols]
    for name in protocols:
        for part in ("recv_overhead", "extra_latency"):
            places += [f"protocols.{name}.{part}.{way}" for way in ways]
        costs = getattr(cluster.file.protocols, name)
        places += [
            f"protocols.{name}.receive_bandwidth.{way}"
            for way in ways
            if getattr(costs.receive_bandwidth, way).value > 0
        ]
    places += [f"protocols.*.thread_block_bandwidth.{way}" for way in ways]
    if inside:
        places.append("node.bandwidth")
    if between:
        places.append("nics.bandwidth")
    if any("reduce" in one.collective for one in measurements):
        places.append("reduction_bandwidth")
    return [*places, "copy_bandwidth"]


def calibrate(
    cluster: Cluster,
    measurements: Sequence[Measurement],
    *,
    numbers: Sequence[str] = (),
    model: str = "flows",
    rounds: int = 20,
    source: str = "fitted to measurements by unisono calibrate",
    done: Callable[[], None] = lambda: None,
) -> Calibration:
    """Fits numbers of a cluster to half of the measurements.

    Args:
        cluster: Where to begin; what is not fitted stays.
        measurements: Measurements of runs on it; at least two.
        numbers: Places as `Cluster.numbers` names them, or with `*` for the protocol: one number
            for all protocols. None: those of `numbers_to_fit`.
        model: The model of the network.
        rounds: At most so many steps; each simulates every fitted point once for each number.
        source: What the fitted file says of its numbers.
        done: Called whenever the points have been simulated once.

    Raises:
        MisuseError: Too few points, a number that there is not, or points that cannot be simulated.
        MachineError: SciPy is not installed.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise missing_extra("unisono calibrate", "scipy", "simulate") from None
    if len(measurements) < 2:
        raise MisuseError(f"{len(measurements)} measurements; half are fitted, so 2 or more")
    if rounds < 1:
        raise MisuseError(f"rounds is {rounds}; it must be 1 or more")
    places = list(numbers) or numbers_to_fit(cluster, measurements)
    before = _values(cluster.file, places)
    start = np.log([before[place] for place in places])
    fit, held = split(measurements)
    workers = len(os.sched_getaffinity(0))

    with ThreadPoolExecutor(workers) as pool:

        def simulate(at: Array, points: Sequence[Measurement]) -> list[Error]:
            file = with_numbers(cluster.file, _spread_values(_by_place(places, at)), source)
            predictors = [Predictor(file, model) for _ in range(workers)]
            parts = pool.map(lambda i: predictors[i].errors(points[i::workers]), range(workers))
            errors = {error.measurement: error for part in parts for error in part}
            done()
            return [errors[one] for one in points]

        def residuals(at: Array) -> Array:
            off = [math.log1p(error.relative) for error in simulate(at, fit)]
            return np.concatenate([off, _PULL * (at - start)])

        change = math.log(_MOST_CHANGE)
        found = least_squares(
            residuals, start, loss="soft_l1", f_scale=_OUTLIER, diff_step=1e-3, max_nfev=rounds,
            bounds=(start - change, start + change),
        )  # fmt: skip
        values = _by_place(places, found.x)
        return Calibration(
            with_numbers(cluster.file, _spread_values(values), source),
            values,
            before,
            simulate(found.x, fit),
            simulate(found.x, held),
        )


def _by_place(places: Sequence[str], logarithms: Array) -> dict[str, float]:
    return {place: float(value) for place, value in zip(places, np.exp(logarithms), strict=True)}


def _spread(place: str) -> list[str]:
    """The places of the numbers that are one where a place has a star."""
    return [place.replace("*", name) for name in native.protocols()] if "*" in place else [place]


def _spread_values(values: Mapping[str, float]) -> dict[str, float]:
    return {one: value for place, value in values.items() for one in _spread(place)}


def _values(file: ClusterFile, places: Sequence[str]) -> dict[str, float]:
    """Where the numbers start."""
    found = {place: number_at(file, _spread(place)[0]) for place in places}
    return {
        place: max(number.value, _LEAST_NS if number.unit == "ns" else 0) or _NOTHING[number.unit]
        for place, number in found.items()
    }
