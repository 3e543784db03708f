"""What a communicator reports of itself: its choices, plans, memory and record."""

import json
from typing import Any, TypedDict, cast

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.programs import Programs

__all__ = ["ConnectionMemory", "Inspection", "MemoryReport"]


class ConnectionMemory(TypedDict):
    """Memory of one connection."""

    peer: int
    channel: int
    transport: str
    bytes: int


class MemoryReport(TypedDict):
    """Memory that a communicator holds, in bytes: see `Communicator.memory`."""

    total_bytes: int
    scratch_bytes: int
    plans_bytes: int
    record_bytes: int
    device_bytes: int
    registered_bytes: int
    mapped_bytes: int
    connections: list[ConnectionMemory]


class Inspection(Programs):
    """What can be asked of a communicator without a call."""

    def explain(
        self,
        collective: str,
        bytes: int | str,  # noqa: A002
        *,
        type: str = "",  # noqa: A002
        operation: str = "sum",
        in_place: bool = False,
        max_sms: int = 0,
        compute_overlap: bool = False,
    ) -> native.Explanation:
        """Which plan a call would take, by which path, and why. Printed, it is a table.

        PyTorch's backend makes its calls with `compute_overlap`, all-reduces in place.

        Args:
            collective: "all_reduce" and so on.
            bytes: The larger of a rank's input and output: a number, or a text as "1MiB".
            type: The element type; empty: any.
            operation: The reduction.
            in_place: Whether input and output are one.
            max_sms: The limit on SMs; 0: the communicator's.
            compute_overlap: Whether computation overlaps with the call.

        Raises:
            MisuseError: A name is not known, or the communicator's policy cannot run the call.
        """
        return self._native.explain(
            *(collective, bytes, type, operation, in_place),
            {"max_sms": max_sms, "compute_overlap": compute_overlap},
        )

    def plan(
        self,
        collective: str,
        bytes: int | str,  # noqa: A002
        *,
        root: int = 0,
        in_place: bool = False,
    ) -> native.Plan:
        """The plan that a call would take, of all ranks: to look at, verify or draw.

        Args:
            collective: "all_reduce" and so on.
            bytes: The larger of a rank's input and output: a number, or a text as "1MiB".
            root: The root, of collectives that have one.
            in_place: Whether input and output are one.

        Raises:
            MisuseError: The call would take a program that was registered; its plan is what
                `register` was given.
        """
        chosen = self.explain(collective, bytes)
        if chosen.origin == "registration":
            raise MisuseError(
                f"{collective} of {chosen.bytes} bytes takes the registered program "
                f"{chosen.algorithm}; its plan is the one that was registered"
            )
        placement = native.Placement.from_nodes(
            [self._native.node_of(rank) for rank in range(self.size)]
        )
        return native.find_algorithm(f"{chosen.algorithm}_{collective}").plan(
            placement,
            root=root,
            in_place=in_place,
            protocol=chosen.protocol,
            channels=chosen.channels,
        )

    def memory(self) -> MemoryReport:
        """The memory that this communicator holds, in bytes.

        Returns:
            total_bytes, scratch_bytes, plans_bytes, record_bytes, device_bytes (of them, on the
            CUDA device), connections (of those made so far, each one's peer, channel, transport,
            bytes), and, no memory of its own, registered_bytes (arrays that other ranks were told
            of) and mapped_bytes (theirs, mapped here).
        """
        report = self._native.memory()
        return {
            "total_bytes": report.total_bytes,
            "scratch_bytes": report.scratch_bytes,
            "plans_bytes": report.plans_bytes,
            "record_bytes": report.record_bytes,
            "device_bytes": report.device_bytes,
            "registered_bytes": report.registered_bytes,
            "mapped_bytes": report.mapped_bytes,
            "connections": [
                {"peer": one.peer, "channel": one.channel, "transport": one.transport,
                 "bytes": one.bytes}
                for one in report.connections
            ],
        }  # fmt: skip

    def dump_record(self) -> str:
        """The record of this communicator's calls, as JSON."""
        return self._native.dump_record()

    def dump(self) -> None:
        """Writes the record to the folder `UNISONO_DUMP_DIRECTORY`, and asks the peers to write
        theirs, which takes them a tenth of a second where they can.

        Raises:
            MisuseError: `UNISONO_DUMP_DIRECTORY` names no folder.
            MachineError: The file cannot be written.
        """
        self._native.dump()

    def record(self) -> dict[str, Any]:
        """The record of this communicator's calls; docs/reference/record.md says what it holds."""
        return cast("dict[str, Any]", json.loads(self.dump_record()))
