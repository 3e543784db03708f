"""Fits the timing model's parameters: to many machines, or to one that a user has measured.

All parameters are logarithms of factors. Each has a prior: what it is elsewhere, and how far it
goes. Errors are relative, and beyond a few percent they count linearly, so that a disturbed point
does not bend the rest. A machine counts as one, however many points it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unisono.errors import MisuseError
from unisono.extras import missing_extra
from unisono.simulate.nccl.choice import Call, Choice
from unisono.simulate.nccl.machine import MachineFile
from unisono.simulate.nccl.timing import Array, Model, Terms, terms_of

# How far parameters go, one standard deviation: those of a GPU generation and of a transport around
# what all have in common, and the common ones around NCCL's own constants.
_SPREADS = {
    "launch": 0.3, "peer": 0.5, "hop": 0.6, "network_hop": 0.6, "bytes": 0.3, "network_bytes": 0.5,
    "fill": 0.8, "share": 0.8,
}  # fmt: skip
_GENERATIONS = {"ampere": 0.3, "hopper": 0.3, "blackwell": 0.3}
_TRANSPORT_SPREAD = 0.4
_TRANSPORTS = ("infiniband", "roce", "gib", "efa", "slingshot", "tcpx", "tcpxo")
# Of a measured time around the model, where a machine is one of many, and where it is the only one.
_NOISE, _OWN_NOISE = 0.12, 0.03
# As many independent points as a machine counts for.
_WEIGHT = 10.0
# Of one machine, a parameter's own deviation from what others of its kind have.
_OWN_SPREAD = 0.35
_ROUNDS = 40


@dataclass(frozen=True)
class Point:
    """A measured time, of a machine.

    Attributes:
        choice: What ran, where it is known.
    """

    machine: MachineFile
    call: Call
    time_us: float
    choice: Choice | None = None

    @cached_property
    def terms(self) -> Terms:
        """The terms of the model."""
        return terms_of(self.machine, self.call, self.choice)


def spread_of(name: str) -> float:
    """How far a parameter goes from one machine to another."""
    kind, last = name.partition(".")[0], name.rpartition(".")[2]
    if last in _GENERATIONS:
        return _GENERATIONS[last]
    return _TRANSPORT_SPREAD if last in _TRANSPORTS else _SPREADS[kind]


def fit_all(points: Sequence[Point]) -> dict[str, float]:
    """Parameters of many machines, each of which counts alike.

    Raises:
        MisuseError: There are no points.
        MachineError: SciPy is not installed.
    """
    if not points:
        raise MisuseError("there are no measurements to fit")
    model = Model([point.terms for point in points])
    names = [point.machine.name for point in points]
    weights = np.sqrt([_WEIGHT / names.count(name) for name in names])
    spreads = np.array([spread_of(name) for name in model.names])
    values = _solve(model, points, _NOISE, weights, np.zeros(len(spreads)), spreads)
    return dict(zip(model.names, map(float, values), strict=True))


@dataclass(frozen=True)
class OwnFit:
    """One machine's parameters.

    Attributes:
        values: All that its points depend on.
        covariance: How well they are known, in the order of `values`.
    """

    values: dict[str, float]
    covariance: Array


def fit_one(points: Sequence[Point], elsewhere: Mapping[str, float]) -> OwnFit:
    """Parameters of one machine, near what they are elsewhere unless its points say otherwise.

    Raises:
        MisuseError: There are no points.
        MachineError: SciPy is not installed.
    """
    if not points:
        raise MisuseError("there are no measurements to fit")
    model = Model([point.terms for point in points])
    start = np.array([elsewhere.get(name, 0.0) for name in model.names])
    spreads = np.array([_own_spread(name) for name in model.names])
    values = _solve(model, points, _OWN_NOISE, np.ones(len(points)), start, spreads)
    slopes = model.slopes(values) / _OWN_NOISE
    precision = slopes.T @ slopes + np.diag(spreads**-2)
    found = dict(zip(model.names, map(float, values), strict=True))
    return OwnFit(found, np.asarray(np.linalg.inv(precision)))


def _own_spread(name: str) -> float:
    return min(_OWN_SPREAD, spread_of(name))


def _solve(
    model: Model, points: Sequence[Point], noise: float, often: Array, start: Array, spreads: Array
) -> Array:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise missing_extra("fitting", "scipy", "simulate") from None
    measured = np.log([point.time_us for point in points])

    def off_by(values: Array) -> tuple[Array, Array]:
        """Errors in units of the noise, and their loss, linear where they are large."""
        off = (np.log(model.times_us(values)) - measured) / noise
        return off, np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off * off) - 1))

    def residuals(values: Array) -> Array:
        return np.concatenate([often * off_by(values)[1], (values - start) / spreads])

    def slopes(values: Array) -> Array:
        off, loss = off_by(values)
        steep = np.ones(len(off))
        np.divide(off, np.sqrt(1 + off * off) * loss, out=steep, where=np.abs(off) > 1e-6)
        rows = (often * steep / noise)[:, None] * model.slopes(values)
        return np.vstack([rows, np.diag(1 / spreads)])

    return np.asarray(least_squares(residuals, start, jac=slopes, max_nfev=_ROUNDS).x)


def predict_us(points: Sequence[Point], values: Mapping[str, float]) -> Array:
    """Times of the calls of points; a parameter that is not among the values is 0."""
    model = Model([point.terms for point in points])
    return model.times_us(np.array([values.get(name, 0.0) for name in model.names]))


def most_helpful(
    fit: OwnFit, machine: MachineFile, candidates: Sequence[Call], count: int
) -> list[tuple[Call, float]]:
    """Calls whose measurement would narrow the predictions of all of them most, one after another.

    Args:
        fit: The fit of the machine.
        machine: What runs them.
        candidates: Calls that could be measured, and whose predictions count.
        count: How many to name.

    Returns:
        The calls, each with the mean standard deviation of the predictions, as a part, that is left
        when it and those before it are measured.
    """
    model = Model([terms_of(machine, call) for call in candidates])
    known = {name: i for i, name in enumerate(fit.values)}
    values = np.array([fit.values.get(name, 0.0) for name in model.names])
    covariance = np.diag([_own_spread(name) ** 2 for name in model.names])
    for row, one in enumerate(model.names):
        for column, other in enumerate(model.names):
            if one in known and other in known:
                covariance[row, column] = fit.covariance[known[one], known[other]]
    slopes = model.slopes(values)
    found: list[tuple[Call, float]] = []
    for _ in range(min(count, len(candidates))):
        shared = slopes @ covariance
        variance = np.einsum("ij,ij->i", shared, slopes)
        joint = shared @ slopes.T
        gain = (joint**2).sum(axis=0) / (variance + _OWN_NOISE**2)
        best = int(np.argmax(gain))
        column = covariance @ slopes[best]
        covariance = covariance - np.outer(column, column) / (variance[best] + _OWN_NOISE**2)
        left = np.einsum("ij,jk,ik->i", slopes, covariance, slopes)
        found.append((candidates[best], float(np.sqrt(np.maximum(left, 0)).mean())))
    return found
