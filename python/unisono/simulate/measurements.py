"""Measured times of collectives, as benches wrote them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono import plans
from unisono.bench.peers import OURS
from unisono.bench.repeats import plan_repeats
from unisono.errors import MisuseError
from unisono.simulate.files import read_table

# The GPU bench's word for Simple where all buffers are mapped: nothing lies in a slot.
_PROTOCOL_OF = {"zero_copy": "simple"}
_COLUMNS = ["collective", "algorithm", "proto", "ch", "bytes", "us"]
_SLOTS = re.compile(r"slots of each connection: (\d+) of (\d+) bytes")
_SPECIALISED = "specialised kernels"
_GPU_NAME = re.compile(r"(\d+), (NVIDIA|AMD) ")
NCCL = "nccl"
# What is NCCL's ring and tree; an all-to-all is sends and receives.
_SERVED_BY_NCCL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Measurement:
    """A time that a bench measured.

    Attributes:
        algorithm: "" if the library chose and did not say: what NCCL chooses on the cluster's
            `gpu` is simulated then, or else the fastest of its ring and tree in any protocol.
        protocol: "" if the library chose and did not say.
        channels: 0: as the cluster's file says, of which NCCL takes as many as it has work for.
        bytes: The larger of input and output of the rank that has most.
        time_us: The time of a call.
        calls: How many were made back to back.
        of_first: The time is that of the rank which ended first, not last.
        slots: Slots of a connection, with `slot_bytes` each; 0: as the cluster's file says.
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


def read_measurements(
    path: str | Path, implementation: str = OURS, *, point_to_point: bool = False
) -> list[Measurement]:
    """What a bench has written: the JSON of `unisono bench --json`, or the GPU bench's table.

    Rows may also have "channels", "calls", "slots" and "slot_bytes".

    Args:
        path: The file.
        implementation: Whose measurements.
        point_to_point: Also NCCL's all-to-alls, which no plan of ours stands for.

    Raises:
        MisuseError: It is neither; the message names the file and the place.
    """
    path = Path(path)
    text = read_table(path)
    if text.startswith("{"):
        found = _read_json(text, path, implementation, point_to_point=point_to_point)
    else:
        found = _read_table(text)
    if not found:
        raise MisuseError(f"{path} has no measurement of '{implementation}'")
    return found


def _read_json(
    text: str, path: Path, implementation: str, *, point_to_point: bool
) -> list[Measurement]:
    try:
        document = json.loads(text)
        iterations = int(document.get("request", {}).get("iterations", 0))
        seconds = float(document.get("request", {}).get("seconds", 0.05))
        return [
            _of_row(row, iterations, seconds)
            for row in _rows_of(document, implementation)
            if _can_be_simulated(row, point_to_point=point_to_point)
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
    if implementation != NCCL or document["request"].get("peer", NCCL) != NCCL:
        return []
    return [
        {
            **row, "implementation": NCCL, "algorithm": "", "protocol": "", "nodes": 1,
            "time_us": _peer_us(row), "calls": _calls_in_graph(row["bytes"]),
        }
        for row in rows
        if row["mode"] == "graph" and _peer_us(row) > 0
    ]  # fmt: skip


def _peer_us(row: dict[str, Any]) -> float:
    """NCCL, under the name that it has today, or had before other peers."""
    return float(row["peer_us"] if "peer_us" in row else row["nccl_us"])


def _can_be_simulated(row: dict[str, Any], *, point_to_point: bool) -> bool:
    if row["implementation"] == NCCL:
        known = {*_SERVED_BY_NCCL, *(["all_to_all"] if point_to_point else [])}
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
        int(row.get("calls") or calls), int(row.get("slots", 0)), int(row.get("slot_bytes", 0)),
        library=NCCL if row["implementation"] == NCCL else "",
    )  # fmt: skip


def _read_table(text: str) -> list[Measurement]:
    """The GPU bench's: all GPUs are ranks of one node, bfloat16, several calls in a graph.

    The rank counts that ends first: the one that started last, which waits for nobody. Where the
    file says "specialised kernels", these ran plans on one channel in LL and LL128, on grids of
    their choice: as many channels are simulated as the cluster's file says.
    """
    found: list[Measurement] = []
    ranks, slots, slot_bytes = 0, 0, 0
    table, specialised = False, False
    for line in text.splitlines():
        words = line.split()
        if _GPU_NAME.match(line):
            ranks += 1
        elif _SPECIALISED in line:
            specialised = True
        elif said := _SLOTS.match(line):
            slots, slot_bytes = int(said[1]), int(said[2])
        elif words[: len(_COLUMNS)] == _COLUMNS:
            table = True
        elif table and len(words) == len(_COLUMNS) + 1 and words[3].isdigit():
            collective, algorithm, protocol, channels, size, time_us, _ = words
            protocol = _PROTOCOL_OF.get(protocol, protocol)
            if specialised and channels == "1" and protocol != "simple":
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
