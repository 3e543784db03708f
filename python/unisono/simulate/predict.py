"""How far the simulator is off what benches measured."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.simulate import nccl
from unisono.simulate.cluster import Cluster, ClusterFile, with_numbers
from unisono.simulate.measurements import NCCL, Measurement
from unisono.simulate.nccl_chain import chain_plan

# Further calls change the mean of a pipelined collective little and cost as much as the first.
_MOST_CALLS = 4
_LARGEST_LL = 64 << 20


@dataclass(frozen=True)
class Prediction:
    """What was simulated for a measurement, and its time."""

    algorithm: str
    protocol: str
    channels: int
    time_us: float


@dataclass(frozen=True)
class Error:
    """A measurement and what was simulated for it."""

    measurement: Measurement
    simulated: Prediction

    @property
    def simulated_us(self) -> float:
        """The simulated time."""
        return self.simulated.time_us

    @property
    def is_guessed(self) -> bool:
        """The measurement does not say what ran."""
        return not (self.measurement.algorithm and self.measurement.protocol)

    @property
    def algorithm(self) -> str:
        """What ran; with a star if only the simulator says so."""
        return self.measurement.algorithm or f"{self.simulated.algorithm}*"

    @property
    def protocol(self) -> str:
        """What the call used; with a star if only the simulator says so."""
        return self.measurement.protocol or f"{self.simulated.protocol}*"

    @property
    def channels(self) -> int:
        """The number of channels of the simulated plan."""
        return self.simulated.channels

    @property
    def relative(self) -> float:
        """Above 0 where the simulator is too slow."""
        return self.simulated_us / self.measurement.time_us - 1


@dataclass(frozen=True)
class DecadeError:
    """How far off the points of a size decade are; parts of the measured time, without sign."""

    decade: str
    points: int
    median: float
    ninetieth: float
    worst: float


class Predictor:
    """Simulates measurements on a cluster, whose slots may differ from one to another."""

    def __init__(self, file: ClusterFile, model: str) -> None:
        self._file, self._model = file, model
        self._clusters: dict[tuple[int, int], Cluster] = {}

    def time_us(self, one: Measurement) -> float:
        """The time of a call; see `predict`."""
        return self.predict(one).time_us

    def predict(self, one: Measurement) -> Prediction:
        """What a call takes, and by what.

        Raises:
            MisuseError: The measurement cannot be simulated on this cluster.
        """
        cluster = self._cluster(one.slots, one.slot_bytes)
        call = nccl.Call(one.collective, one.bytes, one.ranks, one.nodes)
        if one.library == NCCL and not one.algorithm and not one.protocol and cluster.file.gpu:
            choices = [nccl.choose(call, nccl.GENERATIONS[cluster.file.gpu])]
        else:
            choices = _choices(one)
        most = one.channels or cluster.channels

        def of(choice: nccl.Choice) -> Prediction:
            channels = _channels(one, call, choice, most)
            time_us = self._simulate(cluster, one, choice, channels)
            return Prediction(choice.algorithm, choice.protocol, channels, time_us)

        return min(map(of, choices), key=lambda found: found.time_us)

    def check(
        self, measurements: Sequence[Measurement], done: Callable[[], None] = lambda: None
    ) -> tuple[list[Error], list[str]]:
        """Errors, on all cores, and why what cannot be simulated here cannot.

        Args:
            measurements: What to simulate.
            done: Called after each.
        """

        def one(measurement: Measurement) -> Error | str:
            try:
                return Error(measurement, self.predict(measurement))
            except MisuseError as error:
                return f"{measurement.describe()}: {error}"
            finally:
                done()

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = list(pool.map(one, measurements))
        errors = [error for error in found if isinstance(error, Error)]
        return errors, [why for why in found if isinstance(why, str)]

    def errors(self, measurements: Iterable[Measurement]) -> list[Error]:
        """One for each measurement, in order."""
        return [Error(one, self.predict(one)) for one in measurements]

    def _cluster(self, slots: int, slot_bytes: int) -> Cluster:
        known = self._clusters.get((slots, slot_bytes))
        if known is None:
            file = self._file
            if slots:
                places = {f"protocols.{name}.slot": slot_bytes for name in native.protocols()}
                file = with_numbers(file, {"slots": slots, **places}, "the measurement's slots")
            known = self._clusters[slots, slot_bytes] = Cluster(file)
        return known

    def _simulate(
        self, cluster: Cluster, one: Measurement, choice: nccl.Choice, channels: int
    ) -> float:
        # Where each rank waits for all others, calls do not overlap.
        rooted = one.collective in ("broadcast", "reduce", "gather", "scatter")
        most = one.calls if one.of_first else _MOST_CALLS
        calls = min(one.calls, most) if rooted else 1
        blocks = 1 if one.collective in ("all_reduce", "broadcast", "reduce") else one.ranks
        count = max(1, one.bytes // (blocks * dict(native.data_types())[one.type]))
        if _is_chain(one):
            plan = chain_plan(one.ranks, choice.protocol, channels)
            result = native.simulate_plan(
                cluster.machine, plan, nodes=one.nodes, type=one.type, count=count,
                model=self._model, calls=calls,
            )  # fmt: skip
        else:
            entry = native.find_algorithm(f"{choice.algorithm}_{one.collective}")
            result = native.simulate_collective(
                cluster.machine, entry, ranks=one.ranks, nodes=one.nodes, type=one.type,
                count=count, protocol=choice.protocol, channels=channels, model=self._model,
                calls=calls,
            )  # fmt: skip
        return (result.first_us if one.of_first else result.time_us) / calls


def _is_chain(one: Measurement) -> bool:
    """Known to be NCCL's tree, on one node."""
    return one.library == NCCL and one.algorithm == "tree" and one.nodes == 1 and one.ranks > 1


def _channels(one: Measurement, call: nccl.Call, choice: nccl.Choice, most: int) -> int:
    """Channels of our plan: NCCL's have one of the two trees each, ours have both."""
    if one.library != NCCL:
        return most
    channels = nccl.channels(call, choice, most)
    if choice.algorithm == "ring" or _is_chain(one):
        return channels
    return max(1, channels // 2)


def _choices(one: Measurement) -> list[nccl.Choice]:
    """What NCCL would choose among: LL sends twice the bytes, in very many messages."""
    algorithms = ["ring", "tree"] if one.collective == "all_reduce" else ["ring"]
    protocols = [name for name in native.protocols() if name != "ll" or one.bytes <= _LARGEST_LL]
    return [
        nccl.Choice(algorithm, protocol)
        for algorithm in ([one.algorithm] if one.algorithm else algorithms)
        for protocol in ([one.protocol] if one.protocol else protocols)
    ]


def errors_by_decade(errors: Sequence[Error]) -> list[DecadeError]:
    """By decade of size, and for all: "all". A mean over decades would hide the small sizes."""
    by_decade: dict[int, list[float]] = {}
    for error in errors:
        decade = len(str(error.measurement.bytes)) - 1
        by_decade.setdefault(decade, []).append(abs(error.relative))
    rows = [_summarise(_decade_name(decade), by_decade[decade]) for decade in sorted(by_decade)]
    if errors:
        rows.append(_summarise("all", [abs(error.relative) for error in errors]))
    return rows


def _decade_name(decade: int) -> str:
    units = ("B", "KB", "MB", "GB", "TB", "PB")
    number, unit = 10 ** (decade % 3), units[decade // 3]
    return f"{number}..{number * 10} {unit}"


def _summarise(name: str, values: Sequence[float]) -> DecadeError:
    ordered = sorted(values)
    return DecadeError(
        name, len(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9), ordered[-1]
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """The quantile of values in order, interpolated between neighbours."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
