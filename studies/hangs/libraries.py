"""Makes the calls of a program by Unisono, or by PyTorch over Unisono or Gloo."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from kinds import Case
from layouts import LAYOUTS, WORLD, Call

TIMEOUT_S = 3
_SO_ATTACH_FILTER = 26


class Runs(Protocol):
    """A library on one rank."""

    def make(self, call: Call) -> None: ...
    def part(self, name: str) -> None: ...
    def leave(self) -> None: ...
    def abort(self, group: str) -> None: ...


class Numpy:
    """Unisono without PyTorch."""

    def __init__(self, case: Case, rank: int) -> None:
        import unisono

        device = rank if case.library == "gpu" else None
        world = unisono.init(timeout=TIMEOUT_S, device=device)
        self._groups: dict[str, Any] = {WORLD: world}
        for family, groups in LAYOUTS[case.layout].groups(case.ranks).items():
            color = next(i for i, members in enumerate(groups) if rank in members)
            self._groups[family] = world.split(color)

    def make(self, call: Call) -> None:
        import numpy as np

        group = self._groups[call.group]
        data = np.ones(call.elements, call.type)
        match call.kind:
            case "send":
                group.send(data, call.peer)
            case "recv":
                group.recv(data, call.peer)
            case "broadcast" | "reduce":
                getattr(group, call.kind)(data, root=call.root)
            case _:
                getattr(group, call.kind)(data)

    def part(self, name: str) -> None:
        raise ValueError(f"'{name}' is PyTorch's")

    def leave(self) -> None:
        for group in reversed(self._groups.values()):
            group.destroy()

    def abort(self, group: str) -> None:
        self._groups[group].abort()


class DeviceArray:
    """Memory of the current CUDA device."""

    def __init__(self, driver: Any, elements: int, kind: str) -> None:
        import numpy as np

        one, address = np.dtype(kind), ctypes.c_uint64()
        if driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(one.itemsize * elements)):
            raise MemoryError(f"no device memory for {elements} elements")
        self.__cuda_array_interface__ = {
            "data": (address.value, False), "shape": (elements,), "typestr": one.str, "version": 3,
        }  # fmt: skip


class Device(Numpy):
    """Unisono on a CUDA device, each call waited for."""

    def __init__(self, case: Case, rank: int) -> None:
        super().__init__(case, rank)
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank)
        self._driver.cuCtxPushCurrent_v2(context)

    def make(self, call: Call) -> None:
        group = self._groups[call.group]
        data = DeviceArray(self._driver, call.elements, call.type)
        match call.kind:
            case "broadcast":
                group.broadcast(data, root=call.root)
            case "reduce":
                group.reduce(data, root=call.root, out=data if group.rank == call.root else None)
            case "all_gather":
                out = DeviceArray(self._driver, call.elements * group.size, call.type)
                group.all_gather(data, out=out)
            case _:
                group.all_reduce(data, out=data)
        self._driver.cuStreamSynchronize(None)


class Torch:
    """PyTorch over a backend."""

    def __init__(self, case: Case, rank: int, backend: str, store: Path) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        timeout = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=case.ranks,
            timeout=timeout,
        )  # fmt: skip
        self._groups: dict[str, Any] = {WORLD: dist.group.WORLD}
        self._members = {WORLD: list(range(case.ranks))}
        for family, groups in LAYOUTS[case.layout].groups(case.ranks).items():
            for members in groups:
                group = dist.new_group(members, timeout=timeout)
                if rank in members:
                    self._groups[family], self._members[family] = group, members
        self._modules: dict[str, Any] = {}

    def make(self, call: Call) -> None:
        dist, group = self._dist, self._groups[call.group]
        data = self._torch.ones(call.elements, dtype=getattr(self._torch, call.type))
        members = self._members[call.group]
        match call.kind:
            case "send":
                dist.send(data, members[call.peer], group=group)
            case "recv":
                dist.recv(data, members[call.peer], group=group)
            case "broadcast" | "reduce":
                getattr(dist, call.kind)(data, members[call.root], group=group)
            case "all_gather":
                out = data.new_empty(call.elements * len(members))
                dist.all_gather_into_tensor(out, data, group=group)
            case _:
                dist.all_reduce(data, group=group)

    def part(self, name: str) -> None:
        if name not in self._modules:
            self._modules[name] = getattr(self, f"_{name}")()
        module = self._modules[name]
        module(self._torch.ones(4, 8)).sum().backward()
        module.zero_grad()

    def _plain(self) -> Any:
        nn = self._torch.nn
        self._torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def _ddp(self) -> Any:
        return self._torch.nn.parallel.DistributedDataParallel(self._plain(), bucket_cap_mb=0.001)

    def _fsdp(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh, module = init_device_mesh("cpu", (len(self._members[WORLD]),)), self._plain()
        for layer in module:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        return fully_shard(module, mesh=mesh)

    def _tensor(self) -> Any:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = DeviceMesh.from_group(self._groups["tp"], "cpu")
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return parallelize_module(self._plain(), mesh, plan)

    def leave(self) -> None:
        self._dist.destroy_process_group()

    def abort(self, group: str) -> None:
        raise ValueError(f"no case aborts PyTorch's group '{group}'")


def join(case: Case, rank: int, store: Path) -> Runs:
    """The library of a case, with all its groups."""
    if case.library in ("unisono", "gpu"):
        return (Numpy if case.library == "unisono" else Device)(case, rank)
    return Torch(case, rank, case.library.removeprefix("torch-"), store)


def dump_when_told(folder: Path, rank: int, reader: int) -> None:
    """Writes Gloo's Flight Recorder when the pipe says so, as PyTorch's watchdog does for NCCL."""

    def wait() -> None:
        os.read(reader, 1)
        dump_now(folder, rank)

    threading.Thread(target=wait, daemon=True).start()


def dump_now(folder: Path, rank: int) -> None:
    """Writes Gloo's Flight Recorder, whole or not at all."""
    from torch._C._distributed_c10d import _dump_fr_trace

    part = folder.parent / f"{rank}.part"
    part.write_bytes(_dump_fr_trace(includeStackTraces=False))
    part.rename(folder / f"gloo_trace_rank_{rank}")


def hold_the_lock() -> None:
    """For ever, so that no other thread of this interpreter runs."""
    ctypes.PyDLL(None).sleep(1000)


def wait_for_data(library: str) -> None:
    """For a sample that never comes."""
    if not library.startswith("torch"):
        import queue

        queue.Queue[int]().get()
        return
    from torch.utils.data import DataLoader

    next(iter(DataLoader(_Stuck(), num_workers=1)))  # type: ignore[arg-type]


class _Stuck:
    """A data set whose samples never come."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> int:
        signal.pause()
        return 0


def stream_sockets() -> set[int]:
    """Descriptors of this process's TCP connections."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.type == socket.SOCK_STREAM and one.family == socket.AF_INET:
                    found.add(int(entry.name))
        except OSError:
            continue
    return found


def cut_off(descriptors: set[int]) -> None:
    """From now on the kernel drops what arrives there, as if the cable were cut."""
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop))
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as one:
            one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
