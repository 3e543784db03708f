"""Measured times of collectives: what benches wrote, and how far the simulator is off."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono import plans
from unisono.bench.measure import plan_repeats
from unisono.bench.peers import OURS
from unisono.errors import MisuseError
from unisono.simulate import nccl
from unisono.simulate.cluster import Cluster, ClusterFile, with_numbers
from unisono.simulate.nccl_chain import chain_plan

# The GPU bench's word for Simple where all buffers are reached: nothing lies in a slot.
_PROTOCOL_OF = {"straight": "simple"}
_COLUMNS = ["collective", "algorithm", "proto", "ch", "bytes", "us"]
_SLOTS = re.compile(r"slots of each connection: (\d+) of (\d+) bytes")
_BY_HAND = "kernels by hand"
_GPU_NAME = re.compile(r"(\d+), (NVIDIA|AMD) ")
# Further calls change the mean of a pipelined collective little and cost as much as the first.
_MOST_CALLS = 4
_LARGEST_LL = 64 << 20
_NCCL = "nccl"
# What is NCCL's ring and tree.
_OF_NCCL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Measurement:
    """A time that a bench measured.

    Attributes:
        algorithm: "" if the library chose and did not say: what NCCL chooses on the cluster's
            `gpu` is simulated then, or else the fastest of its ring and tree in any protocol.
        protocol: "" likewise.
        channels: 0: as the cluster's file says, of which NCCL takes as many as it has work for.
        bytes: The larger of input and output of the rank that has most.
        time_us: Of a call.
        calls: How many were made back to back.
        of_first: The time is that of the rank which ended first, not last.
        slots: Of a connection, with `slot_bytes` each; 0: as the cluster's file says.
        library: "nccl", or "" for this one and others.
    """

    collective: str
    algorithm: str
    protocol: str
    ranks: int
    nodes: int
    bytes: int
    type: str
    time_us: float
    channels: int = 0
    calls: int = 1
    slots: int = 0
    slot_bytes: int = 0
    of_first: bool = False
    library: str = ""

    def describe(self) -> str:
        """For a person."""
        how = [self.algorithm, self.collective, self.protocol]
        channels = f" on {self.channels} channels" if self.channels else ""
        size = native.format_bytes(self.bytes)
        return f"{' '.join(word for word in how if word)}{channels}, {size}, {self.ranks} ranks"


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
        """Likewise."""
        return self.measurement.protocol or f"{self.simulated.protocol}*"

    @property
    def channels(self) -> int:
        """Of the simulated plan."""
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


def read_measurements(path: str | Path, implementation: str = OURS) -> list[Measurement]:
    """What a bench has written: the JSON of `unisono bench --json`, or the GPU bench's table.

    Rows may also have "channels", "calls", "slots" and "slot_bytes".

    Raises:
        MisuseError: It is neither; the message names the file and the place.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MisuseError(f"{path} is not text") from None
    found = _read_json(text, path, implementation) if text.startswith("{") else _read_table(text)
    if not found:
        raise MisuseError(f"{path} has no measurement of '{implementation}'")
    return found


def _read_json(text: str, path: Path, implementation: str) -> list[Measurement]:
    try:
        document = json.loads(text)
        iterations = int(document.get("request", {}).get("iterations", 0))
        seconds = float(document.get("request", {}).get("seconds", 0.05))
        return [
            _of_row(row, iterations, seconds)
            for row in _rows_of(document, implementation)
            if _can_be_simulated(row)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise MisuseError(f"{path} is no bench's JSON: {what}") from None


def _rows_of(document: dict[str, Any], implementation: str) -> list[dict[str, Any]]:
    """Those of an implementation, as `unisono bench` writes them.

    Of the bench on devices, NCCL's calls in CUDA graphs, where no launch is waited for. Which
    algorithm this library chose there, it does not say.
    """
    rows = document["rows"]
    if any("implementation" in row for row in rows):
        return [row for row in rows if row["implementation"] == implementation]
    if implementation != _NCCL or document["request"].get("peer", _NCCL) != _NCCL:
        return []
    return [
        {
            **row, "implementation": _NCCL, "algorithm": "", "protocol": "", "nodes": 1,
            "time_us": _peer_us(row), "calls": _calls_in_graph(row["bytes"]),
        }
        for row in rows
        if row["mode"] == "graph" and _peer_us(row) > 0
    ]  # fmt: skip


def _peer_us(row: dict[str, Any]) -> float:
    """Of NCCL, under the name that it has today, or had before other peers."""
    return float(row["peer_us"] if "peer_us" in row else row["nccl_us"])


def _can_be_simulated(row: dict[str, Any]) -> bool:
    if row["implementation"] == _NCCL:
        known = set(_OF_NCCL)
    else:
        known = {entry.collective for entry in plans.algorithms()} - {"barrier"}
    return row["collective"] in known and row["bytes"] > 0


def _of_row(row: dict[str, Any], iterations: int, seconds: float) -> Measurement:
    time_us = float(row["time_us"])
    if not time_us > 0:
        raise ValueError(f"time_us is {row['time_us']}; it must be above 0")
    _, calls = plan_repeats(time_us / 1e6, seconds, iterations)
    return Measurement(
        row["collective"], row["algorithm"], row["protocol"], int(row["ranks"]), int(row["nodes"]),
        int(row["bytes"]), row["type"], time_us, int(row.get("channels", 0)),
        int(row.get("calls", calls)), int(row.get("slots", 0)), int(row.get("slot_bytes", 0)),
        library=_NCCL if row["implementation"] == _NCCL else "",
    )  # fmt: skip


def _read_table(text: str) -> list[Measurement]:
    """The GPU bench's: all GPUs are ranks of one node, bfloat16, several calls in a graph.

    The rank counts that ends first: the one that started last, which waits for nobody. Where the
    file says "kernels by hand", plans on one channel in LL and LL128 were run by such, on as many
    thread blocks as they like: as many channels are simulated as the cluster's file says.
    """
    found: list[Measurement] = []
    ranks, slots, slot_bytes = 0, 0, 0
    table, by_hand = False, False
    for line in text.splitlines():
        words = line.split()
        if _GPU_NAME.match(line):
            ranks += 1
        elif _BY_HAND in line:
            by_hand = True
        elif said := _SLOTS.match(line):
            slots, slot_bytes = int(said[1]), int(said[2])
        elif words[: len(_COLUMNS)] == _COLUMNS:
            table = True
        elif table and len(words) == len(_COLUMNS) + 1 and words[3].isdigit():
            collective, algorithm, protocol, channels, size, time_us, _ = words
            protocol = _PROTOCOL_OF.get(protocol, protocol)
            if by_hand and channels == "1" and protocol != "simple":
                channels = "0"
            row = Measurement(
                collective, algorithm, protocol, ranks, 1, int(size), "bfloat16", float(time_us),
                int(channels), _calls_in_graph(int(size)), slots, slot_bytes, of_first=True,
            )  # fmt: skip
            found.append(row)
    return found


def _calls_in_graph(size: int) -> int:
    """As many as the GPU bench makes."""
    return 20 if size <= 4 << 20 else 5 if size <= 64 << 20 else 2


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
        if one.library == _NCCL and not one.algorithm and not one.protocol and cluster.file.gpu:
            choices = [nccl.choose(call, cluster.file.gpu)]
        else:
            choices = _choices(one)
        most = one.channels or cluster.channels

        def of(choice: nccl.Choice) -> Prediction:
            channels = _channels(one, call, choice, most)
            time_us = self._simulate(cluster, one, choice, channels)
            return Prediction(choice.algorithm, choice.protocol, channels, time_us)

        return min(map(of, choices), key=lambda found: found.time_us)

    def check(self, measurements: Sequence[Measurement]) -> tuple[list[Error], list[str]]:
        """Errors, on all cores, and why what cannot be simulated here cannot."""

        def one(measurement: Measurement) -> Error | str:
            try:
                return Error(measurement, self.predict(measurement))
            except MisuseError as error:
                return f"{measurement.describe()}: {error}"

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
    return one.library == _NCCL and one.algorithm == "tree" and one.nodes == 1 and one.ranks > 1


def _channels(one: Measurement, call: nccl.Call, choice: nccl.Choice, most: int) -> int:
    """Of our plan. A channel of NCCL's has one of the two trees, one of ours has both."""
    if one.library != _NCCL:
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
    """Of values in order, interpolated between neighbours."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
