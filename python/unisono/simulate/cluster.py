"""Clusters: the YAML of clusters/, its schema, and what the native simulator makes of it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, model_validator

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.names import check_names
from unisono.simulate.files import Part, folder, format_of, parse, read
from unisono.simulate.quantities import Bandwidth, Duration, Number, Plain, Size


class _Ways(Part):
    """A cost on the two kinds of way."""

    inside: Duration
    between: Duration


class _Bandwidths(Part):
    inside: Bandwidth
    between: Bandwidth


class _Receiving(Part):
    """The time to read a whole message; 0: it is read while it arrives."""

    inside: Bandwidth = Number(0, "", "GB/s")
    between: Bandwidth = Number(0, "", "GB/s")


class _Node(Part):
    """The network inside a node: one port a rank, full duplex, through a switch."""

    latency: Duration
    bandwidth: Bandwidth
    gap: Duration = Number(0, "", "ns")


class _Nics(Part):
    per_node: Plain
    bandwidth: Bandwidth
    gap: Duration = Number(0, "", "ns")
    burst: Size = Number(0, "", "B")
    of_rank: list[int] = Field(max_length=1024)


class _Level(Part):
    name: str = Field(max_length=64)
    nodes: Plain
    latency: Duration
    uplinks: Plain = Number(0, "")
    uplink_bandwidth: Bandwidth = Number(0, "", "GB/s")
    adaptive: bool = False


class _Protocol(Part):
    launch: Duration
    launch_gap: Duration = Number(0, "", "ns")
    send_overhead: _Ways
    recv_overhead: _Ways
    extra_latency: _Ways
    thread_block_bandwidth: _Bandwidths
    receive_bandwidth: _Receiving = Field(default_factory=_Receiving)
    reduction_overhead: Duration = Number(0, "", "ns")
    copy_overhead: Duration = Number(0, "", "ns")
    reduction_bandwidth: Bandwidth = Number(0, "", "GB/s")
    copy_bandwidth: Bandwidth = Number(0, "", "GB/s")
    wire_bytes_per_byte: Plain
    slot: Size


class _Protocols(Part):
    simple: _Protocol
    ll: _Protocol
    ll128: _Protocol


class ClusterFile(Part):
    """A cluster file, format 1; docs/how-to/simulate.md says what each number means."""

    format: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    description: str
    sources: dict[str, str]
    nodes: Plain
    ranks_per_node: Plain
    node: _Node
    nics: _Nics
    network: list[_Level] = Field(max_length=8)
    protocols: _Protocols
    reduction_bandwidth: Bandwidth = Number(0, "", "GB/s")
    copy_bandwidth: Bandwidth = Number(0, "", "GB/s")
    ranks_share_core: bool = False
    slots: Plain = Number(8, "")
    tiles: Plain = Number(1, "")
    channels: Plain
    gpu: Literal["", "ampere", "hopper"] = ""

    @model_validator(mode="after")
    def _sources_are_known(self) -> "ClusterFile":
        for place, number in _numbers(self, ""):
            if number.source and number.source not in self.sources:
                raise ValueError(
                    f"{place}: the source [{number.source}] is not among: "
                    f"{', '.join(self.sources) or 'none'}"
                )
        return self


class Cluster:
    """A cluster that can be simulated.

    Attributes:
        file: What the file says.
        machine: The native simulator's form of it.
    """

    def __init__(self, file: ClusterFile) -> None:
        self.file = file
        self.machine = native.Machine.from_json(json.dumps(_to_machine(file)))

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.file.name

    @property
    def channels(self) -> int:
        """Channels of a collective where none are asked for."""
        return _whole("channels", self.file.channels)

    def unseen_uplinks(self, model: str, nodes: int) -> str:
        """A sentence for a person, where messages cross uplinks that a model does not see.

        Args:
            model: "loggops", "flows" or "alpha_beta"; "flows" alone sees them.
            nodes: The nodes whose ranks send, as few units of the network as hold them.

        Returns:
            An empty text where nothing is left out.
        """
        crossed = [one.name for one in self.file.network if one.uplinks.value > 0
                   and one.nodes.value < nodes]  # fmt: skip
        if model == "flows" or not crossed:
            return ""
        return (
            f"{model} does not see the uplinks of {', '.join(crossed)}, which {self.name} lists: "
            "no message waits for another there. --model flows shares them."
        )

    def time_us(self, plan: native.Plan, size_bytes: int, nodes: int = 0) -> float:
        """Microseconds that a plan takes here.

        Args:
            plan: The plan.
            size_bytes: The larger of input and output.
            nodes: Spread the ranks evenly over so many; 0: fill one node after another.

        Raises:
            MisuseError: The cluster has too few places, or the plan is malformed.
        """
        from unisono.simulate.run import simulate_plan  # it imports this module

        return simulate_plan(self, plan, size_bytes=size_bytes, nodes=nodes).time_us

    def numbers(self) -> list[tuple[str, float, str]]:
        """Each number of the file: its place, its value in ns, GB/s or bytes, and its source."""
        return [
            (place, number.value, self.file.sources[number.source])
            for place, number in _numbers(self.file, "")
            if number.source
        ]


def parse_cluster(text: str, where: str = "cluster") -> Cluster:
    """The cluster that a YAML text describes.

    Raises:
        MisuseError: It is no such text; the message names the member and what would be right.
    """
    file = parse(ClusterFile, text, where)
    try:
        return Cluster(file)
    except MisuseError as error:
        raise MisuseError(f"{where}: {error}") from None


def load_cluster(name: str | Path) -> Cluster:
    """A cluster by its built-in name, or from a file.

    Raises:
        MisuseError: There is none of that name, the file is wrong, or it is a machine of NCCL's
            model.
    """
    path = Path(name)
    is_file = path.suffix in (".yaml", ".yml")
    if not is_file:
        if str(name) not in builtin_clusters() and str(name) in machine_names():
            raise MisuseError(
                f"'{name}' is a machine of NCCL's model alone: add --implementation nccl, or take "
                f"one of the clusters {', '.join(builtin_clusters())}"
            )
        check_names("cluster", [str(name)], builtin_clusters())
        path = folder() / f"{name}.yaml"
    text = read(path)
    if is_file and format_of(text) == 2:
        raise MisuseError(
            f"{name} has format 2, which is a machine of NCCL's model: add --implementation nccl, "
            "or give a cluster file, whose format is 1"
        )
    return parse_cluster(text, str(name))


def builtin_clusters() -> list[str]:
    """Names of the clusters in the package."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def machine_names() -> list[str]:
    """Names of the machines of NCCL's model in the package."""
    return sorted(path.stem for path in (folder() / "nccl" / "machines").glob("*.yaml"))


def _numbers(part: BaseModel, place: str) -> Iterator[tuple[str, Number]]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        here = f"{place}.{name}" if place else name
        if isinstance(value, Number):
            yield here, value
        elif isinstance(value, BaseModel):
            yield from _numbers(value, here)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _numbers(item, f"{here}[{i}]")


def with_numbers(file: ClusterFile, values: Mapping[str, float], source: str) -> ClusterFile:
    """The file with other numbers, all of one source.

    Args:
        file: The file.
        values: By place, as `Cluster.numbers` names it ("protocols.ll.launch"): ns, GB/s or bytes.
        source: What `sources` says of them, under the name "fitted".

    Raises:
        MisuseError: There is no such number.
    """
    copy = file.model_copy(deep=True)
    name_of_source = "fitted"
    while copy.sources.get(name_of_source, source) != source:
        name_of_source += "_again"
    copy.sources[name_of_source] = source
    for place, value in values.items():
        old = number_at(copy, place)
        holder, _, name = place.rpartition(".")
        setattr(_part_at(copy, holder), name, Number(value, name_of_source, old.unit))
    return copy


def number_at(file: ClusterFile, place: str) -> Number:
    """The number at a place, as `Cluster.numbers` names it.

    Raises:
        MisuseError: There is none.
    """
    found = _part_at(file, place)
    if not isinstance(found, Number):
        known = ", ".join(known for known, _ in _numbers(file, ""))
        raise MisuseError(f"there is no number '{place}' in {file.name}; there are {known}")
    return found


def _part_at(file: ClusterFile, place: str) -> Any:
    part: Any = file
    for name in place.replace("]", "").replace("[", ".").split("."):
        if isinstance(part, list):
            part = part[int(name)] if name.isdigit() and int(name) < len(part) else None
        elif name and isinstance(part, BaseModel):
            part = getattr(part, name, None)
    return part


def to_yaml(file: ClusterFile) -> str:
    """The text of a cluster file, which `parse_cluster` reads."""
    document = _to_plain(file)
    text: str = yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)
    return text


def _to_plain(part: Any) -> Any:
    if isinstance(part, Number):
        return part.text()
    if isinstance(part, BaseModel):
        values = ((name, getattr(part, name)) for name in type(part).model_fields)
        # Without a source it is the default, which is not written.
        return {
            name: _to_plain(value)
            for name, value in values
            if value != "" and not (isinstance(value, Number) and not value.source)
        }
    if isinstance(part, list):
        return [_to_plain(item) for item in part]
    return part


def _whole(what: str, number: Number) -> int:
    if number.value != int(number.value):
        raise MisuseError(f"{what} is {number.value}; it must be a whole number")
    return int(number.value)


def _to_machine(file: ClusterFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "nodes": _whole("nodes", file.nodes),
        "ranks_per_node": _whole("ranks_per_node", file.ranks_per_node),
        "node_latency_ns": file.node.latency.value,
        "node_gb_s": file.node.bandwidth.value,
        "node_gap_ns": file.node.gap.value,
        "nics_per_node": _whole("nics.per_node", file.nics.per_node),
        "nic_gb_s": file.nics.bandwidth.value,
        "nic_gap_ns": file.nics.gap.value,
        "nic_burst_bytes": _whole("nics.burst", file.nics.burst),
        "nic_of_local_rank": file.nics.of_rank,
        "levels": [
            {
                "name": level.name,
                "nodes": _whole(f"network.{level.name}.nodes", level.nodes),
                "latency_ns": level.latency.value,
                "uplinks": _whole(f"network.{level.name}.uplinks", level.uplinks),
                "uplink_gb_s": level.uplink_bandwidth.value,
                "adaptive": level.adaptive,
            }
            for level in file.network
        ],
        "protocols": {
            name: _to_protocol(name, getattr(file.protocols, name))
            for name in ("simple", "ll", "ll128")
        },
        "reduce_gb_s": file.reduction_bandwidth.value,
        "copy_gb_s": file.copy_bandwidth.value,
        "ranks_share_core": file.ranks_share_core,
        "slots": _whole("slots", file.slots),
        "tiles": _whole("tiles", file.tiles),
    }


def _to_protocol(name: str, costs: _Protocol) -> dict[str, Any]:
    def pair(part: _Ways | _Bandwidths | _Receiving) -> list[float]:
        return [part.inside.value, part.between.value]

    return {
        "launch_ns": costs.launch.value,
        "launch_gap_ns": costs.launch_gap.value,
        "reduction_overhead_ns": costs.reduction_overhead.value,
        "copy_overhead_ns": costs.copy_overhead.value,
        "reduce_gb_s": costs.reduction_bandwidth.value,
        "copy_gb_s": costs.copy_bandwidth.value,
        "send_overhead_ns": pair(costs.send_overhead),
        "recv_overhead_ns": pair(costs.recv_overhead),
        "extra_latency_ns": pair(costs.extra_latency),
        "thread_block_gb_s": pair(costs.thread_block_bandwidth),
        "receive_gb_s": pair(costs.receive_bandwidth),
        "wire_bytes_per_byte": costs.wire_bytes_per_byte.value,
        "slot_bytes": _whole(f"protocols.{name}.slot", costs.slot),
    }
