"""A machine that runs NCCL, in three parts: hardware, software stack, calibration."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, field_validator, model_validator

from unisono.errors import MisuseError
from unisono.names import check_names
from unisono.simulate.cluster import builtin_clusters, machine_names
from unisono.simulate.files import Part, folder, format_of, parse, read
from unisono.simulate.nccl.choice import Graph, Platform
from unisono.simulate.nccl.tables import tables_of
from unisono.simulate.quantities import Bandwidth, Number, Plain

Transport = Literal["infiniband", "roce", "gib", "efa", "slingshot", "tcpx", "tcpxo"]


class Hardware(Part):
    """Public facts, each with its source.

    Attributes:
        ranks_per_node: GPUs that NVLink joins.
        nvlink: The NVLink bandwidth of a GPU, one way, all its links.
        sharp: The switches between them can reduce (NVLS).
        nics: The number of NICs of a node; 0: it has no network.
        nic_bandwidth: Line rate of a NIC.
    """

    gpu: Literal["ampere", "hopper", "blackwell"]
    ranks_per_node: Plain
    nvlink: Bandwidth
    sharp: bool
    nics: Plain = Number(0, "")
    nic_bandwidth: Bandwidth = Number(0, "", "GB/s")
    cpu: Literal["intel", "amd", "arm"] = "intel"


class Stack(Part):
    """What runs on it, as its site publishes it.

    Attributes:
        nccl: A version, as "2.27.7"; empty: unknown, taken as the newest.
        transport: NCCL's network plugin.
        algorithms: NCCL_ALGO; empty: all.
        protocols: NCCL_PROTO; empty: all.
        nvls: NCCL_NVLS_ENABLE.
        collnet: NCCL_COLLNET_ENABLE, with a plugin whose switches reduce (SHARP).
        pxn: Sends to other nodes go through the GPU next to the receiver's NIC, unless
            NCCL_PXN_DISABLE is set.
        chunk_bytes: NCCL_DYNAMIC_CHUNK_SIZE, which Google's profiles set; 0: NCCL cuts chunks to
            the size of a call.
        graphs: Calls are in CUDA graphs, so that no launch is waited for.
    """

    nccl: str = ""
    transport: Transport = "infiniband"
    algorithms: list[
        Literal["ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "pat"]
    ] = Field(default_factory=list)
    protocols: list[Literal["ll", "ll128", "simple"]] = Field(default_factory=list)
    nvls: bool = True
    collnet: bool = False
    pxn: bool = True
    chunk_bytes: int = Field(default=0, ge=0)
    graphs: bool = False

    @field_validator("nccl")
    @classmethod
    def _is_known(cls, version: str) -> str:
        try:
            tables_of(version)
        except MisuseError as error:
            raise ValueError(str(error)) from None
        return version


class Calibration(Part):
    """What was fitted to measurements of this machine.

    Attributes:
        measurements: Files or tables that were fitted.
        points: How many of them.
        factors: By parameter of the model, as `unisono calibrate` prints them: how many times the
            model's own value.
        error: Median error of points that were held back, as a part.
        spread: 80 % of them were off by no more.
    """

    measurements: list[str]
    points: int = Field(ge=1)
    factors: dict[str, float]
    error: float = Field(ge=0)
    spread: float = Field(ge=0)


class MachineFile(Part):
    """A machine's file, format 2."""

    format: Literal[2]
    name: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    description: str
    sources: dict[str, str]
    hardware: Hardware
    stack: Stack
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _sources_are_known(self) -> "MachineFile":
        for name in type(self.hardware).model_fields:
            number = getattr(self.hardware, name)
            if isinstance(number, Number) and number.source not in ("", *self.sources):
                known = ", ".join(self.sources) or "none"
                raise ValueError(f"hardware.{name}: the source [{number.source}] is not in {known}")
        return self


def parse_machine(text: str, where: str = "machine") -> MachineFile:
    """The machine that a YAML text describes.

    Raises:
        MisuseError: It is no such text; the message names the member and what would be right.
    """
    return parse(MachineFile, text, where)


def machine_to_yaml(machine: MachineFile) -> str:
    """The text of a machine's file, which `parse_machine` reads."""

    def plain(value: Any) -> Any:
        if isinstance(value, Number):
            return value.text()
        if isinstance(value, BaseModel):
            values = ((name, getattr(value, name)) for name in type(value).model_fields)
            return {
                name: plain(one)
                for name, one in values
                if one is not None and not (isinstance(one, Number) and not one.source)
            }
        return value

    text: str = yaml.safe_dump(plain(machine), sort_keys=False, width=100, allow_unicode=True)
    return text


def find_machine(name: str) -> MachineFile:
    """A machine by its name, or from a file.

    Raises:
        MisuseError: There is none of that name, the file is wrong, or it is a cluster of the event
            simulator.
    """
    if Path(name).suffix in (".yaml", ".yml"):
        return load_machine(name)
    if name not in machine_names() and name in builtin_clusters():
        raise MisuseError(
            f"'{name}' is a cluster of the event simulator alone: NCCL's model knows the machines "
            f"{', '.join(machine_names())}, and files of format 2"
        )
    check_names("machine", [name], machine_names())
    return load_machine(folder() / "nccl" / "machines" / f"{name}.yaml")


def load_machine(path: str | Path) -> MachineFile:
    """A machine from a file.

    Raises:
        MisuseError: There is no such file, or it is wrong.
    """
    text = read(Path(path))
    if format_of(text) == 1:
        raise MisuseError(
            f"{path} has format 1, which is a cluster of the event simulator: leave out "
            "--implementation nccl, or give a machine file, whose format is 2"
        )
    return parse_machine(text, str(path))


def nics_of(hardware: Hardware, local: int) -> int:
    """NICs that so many GPUs of a node use: each has its own share of them."""
    nics = hardware.nics.value
    return max(1, round(nics * min(1.0, local / hardware.ranks_per_node.value))) if nics else 0


def platform_of(machine: MachineFile, nodes: int, local: int = 0) -> Platform:
    """What NCCL's formula asks of a machine for a call on so many nodes.

    Between nodes each NIC has a channel, as fast as the first of NCCL's speeds that neither a NIC
    nor its share of the NVLinks limits; inside nodes, a tree's can be faster than a NIC.

    Args:
        machine: Where.
        nodes: The number of nodes of the call.
        local: Ranks on each; 0: as many as a node has.

    Raises:
        MisuseError: It has no network, and there are several nodes.
    """
    hardware, stack = machine.hardware, machine.stack
    local = local or int(hardware.ranks_per_node.value)
    gpu = tables_of(stack.nccl).generations[hardware.gpu]
    channels, inside = gpu.inside
    rings = trees = Graph(channels, inside, inside)
    nvls = None
    if nodes > 1:
        nics = nics_of(hardware, local)
        if nics < 1:
            raise MisuseError(f"{machine.name} has no NICs, and {nodes} nodes are asked for")
        share = gpu.nvlink_gb_s / nics
        between = _first(gpu.speeds, min(hardware.nic_bandwidth.value, share))
        rings = Graph(nics, between, between)
        trees = Graph(nics, max(between, _first(gpu.inside_speeds, share)), between)
    if hardware.sharp and stack.nvls and gpu.nvls[0]:
        count, speed = gpu.nvls
        network = nics_of(hardware, local) * hardware.nic_bandwidth.value
        # A channel leaves a node through one NIC.
        share = min(network / count, hardware.nic_bandwidth.value) if nodes > 1 else speed
        nvls = Graph(count, speed, share)
    return Platform(
        hardware.gpu, rings, trees, nvls, stack.collnet, hardware.cpu, stack.nccl,
        tuple(stack.algorithms), tuple(stack.protocols),
    )  # fmt: skip


def _first(speeds: tuple[float, ...], limit: float) -> float:
    return next((speed for speed in speeds if speed <= limit), limit)
