"""What torch.distributed keeps to backends of PyTorch's own, for groups of Unisono too.

`monitored_barrier` refuses every backend but Gloo, and `split_group` every job without an
accelerator, by checks in Python; where a device is bound to the default group, `new_group` calls
what only NCCL's groups have; a group's timeout can be set for Gloo and NCCL only; and every backend
that is not PyTorch's own is called "custom". The replacements here serve Unisono's
groups, and hand all other calls on to PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, _register_process_group
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from unisono.torch import _batches, _turns
from unisono.torch._replace import replace

_CUSTOM = dist.ProcessGroup.BackendType.CUSTOM


def backend_of(
    group: dist.ProcessGroup | None, devices: Sequence[str] = ("cpu", "cuda")
) -> Any | None:
    """A group's backend that is Unisono's; None takes the default group.

    Args:
        group: A group, or what PyTorch gives to ranks that are not in one.
        devices: The types of tensors to look at, the first that is Unisono's counts.
    """
    group = group or c10d._get_default_group()
    if not isinstance(group, dist.ProcessGroup):
        return None
    found = (_backend_for(group, device) for device in devices)
    return next((backend for backend in found if backend is not None), None)


def _backends_of(group: dist.ProcessGroup | None) -> list[Any]:
    found = [backend_of(group, [device]) for device in ("cpu", "cuda")]
    return [backend for backend in found if backend is not None]


def _backend_for(group: dist.ProcessGroup, device: str) -> Any | None:
    try:
        backend = group._get_backend(torch.device(device))
    except RuntimeError:
        return None  # a group for other devices
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL PyTorch puts a checking wrapper around it.
    backend = getattr(backend, "wrapped_pg", backend)
    return backend if backend.name() == "unisono" else None


def serve(barrier: Callable[[dist.ProcessGroup | None, timedelta | None], None]) -> None:
    """Takes the places of PyTorch's functions.

    Args:
        barrier: The monitored barrier of a Unisono group.
    """
    pytorch: Any = c10d
    replace(pytorch.monitored_barrier, lambda original: _make_barrier(original, barrier))
    replace(pytorch.split_group, _make_split_group)
    replace(pytorch._get_split_source, _make_split_source)
    replace(pytorch._set_pg_timeout, _make_set_timeout)
    _batches.serve(_backends_of)
    _turns.serve()
    _serve_names()
    _serve_sharded_tensors()


def _make_barrier(
    pytorch_barrier: Callable[..., None],
    barrier: Callable[[dist.ProcessGroup | None, timedelta | None], None],
) -> Callable[..., None]:
    def monitored_barrier(
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | None = None,
        wait_all_ranks: bool = False,
    ) -> None:
        if backend_of(group) is None:
            pytorch_barrier(group, timeout, wait_all_ranks)
        else:
            barrier(group, timeout)

    return monitored_barrier


def _make_split_group(pytorch_split: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(pytorch_split)
    def split_group(
        parent_pg: dist.ProcessGroup | None = None,
        split_ranks: Sequence[Sequence[int]] | None = None,
        timeout: timedelta | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        **named: Any,
    ) -> Any:
        bound = c10d._get_default_group().bound_device_id
        devices = ["cpu", "cuda"] if bound is None else [bound.type]
        if named or backend_of(parent_pg, devices) is None:
            return pytorch_split(parent_pg, split_ranks, timeout, pg_options, group_desc, **named)
        return _split(parent_pg, split_ranks, timeout, pg_options, group_desc)

    return split_group


def _make_split_source(pytorch_split_source: Callable[..., Any]) -> Callable[..., Any]:
    def split_source(group: dist.ProcessGroup, *requested: Any) -> Any | None:
        # Groups made by new_group are jobs of their own, and need no rank that is not in them.
        bound = group.bound_device_id
        devices = ["cpu", "cuda"] if bound is None else [bound.type]
        return None if backend_of(group, devices) else pytorch_split_source(group, *requested)

    return split_source


def _default_backend_of(group: dist.ProcessGroup) -> Any | None:
    """The backend that speaks for the whole group, if it is Unisono's."""
    # PyTorch gives only the name of a group's default backend.
    return backend_of(group) if _pytorch_name(group) == "custom" else None


_pytorch_name = dist.ProcessGroup.name


def _serve_names() -> None:
    """Groups whose default backend is Unisono's have its name and its sequence numbers."""
    group_type: Any = dist.ProcessGroup
    model_type: Any = DistributedDataParallel
    pytorch_sequence = group_type._get_sequence_number_for_group
    pytorch_logging_data = model_type._get_ddp_logging_data

    def name(group: dist.ProcessGroup) -> str:
        return _pytorch_name(group) if _default_backend_of(group) is None else "unisono"

    def backend_name(group: dist.ProcessGroup) -> str:
        # PyTorch compares this with "gloo" to learn whether tensors without a device of their own
        # belong on the CPU; it takes them to be on a CUDA device otherwise.
        found = name(group)
        return "gloo" if found == "unisono" and not torch.cuda.is_available() else found

    def sequence_number(group: dist.ProcessGroup) -> int:
        backend = _default_backend_of(group)
        if backend is None:
            return int(pytorch_sequence(group))
        return int(backend._get_sequence_number_for_group())

    @functools.wraps(pytorch_logging_data)
    def logging_data(model: DistributedDataParallel) -> dict[str, Any]:
        data: dict[str, Any] = pytorch_logging_data(model)
        if _default_backend_of(model.process_group) is not None:
            data["backend_name"] = "unisono"
        return data

    group_type.name = name
    group_type._get_backend_name = backend_name
    group_type._get_sequence_number_for_group = sequence_number
    model_type._get_ddp_logging_data = logging_data


def _make_set_timeout(pytorch_set: Callable[..., None]) -> Callable[..., None]:
    def set_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
        backend = backend_of(group)
        if backend is None:
            pytorch_set(timeout, group)
        else:
            backend._set_default_timeout(timeout)

    return set_timeout


def _serve_sharded_tensors() -> None:
    """A ShardedTensor of a Unisono group is where its shards are, on the CPU or a CUDA device."""
    from torch.distributed._shard import sharded_tensor

    tensor_type: Any = sharded_tensor.ShardedTensor  # type: ignore[attr-defined,unused-ignore]
    pytorch_device: Callable[[Any], torch.device] = tensor_type._get_preferred_device

    @functools.wraps(pytorch_device)
    def preferred_device(self: Any) -> torch.device:
        shards = self.metadata().shards_metadata
        placed = shards[0].placement if shards else None
        if backend_of(self._process_group) is None or placed is None:
            return pytorch_device(self)
        device = placed.device()
        if device is not None and device.type == "cuda":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    tensor_type._get_preferred_device = preferred_device


def _split(
    parent: dist.ProcessGroup | None,
    parts: Sequence[Sequence[int]] | None,
    timeout: timedelta | None,
    options: Any,
    description: str | None,
) -> dist.ProcessGroup | None:
    parent = parent or c10d._get_default_group()
    rank, size = parent.rank(), parent.size()
    members = [member for part in parts or () for member in part]
    if not parts or not all(parts) or len(set(members)) < len(members):
        raise ValueError(
            f"split_group got the parts {parts!r}; they must be lists of ranks, each at least one, "
            "and no rank in two of them"
        )
    if not all(0 <= member < size for member in members):
        raise ValueError(f"split_group got the parts {parts!r}; ranks must be 0 to {size - 1}")
    own = sorted(next((part for part in parts if rank in part), parts[0]))
    name = c10d._process_group_name(own, use_hashed_name=True)
    group = parent.split_group(
        own, timeout=timeout, opts=options, group_name=name, group_desc=description
    )
    if group is not None:
        _register(group, name, parent, own)
    return group


def shrunk(
    parent: dist.ProcessGroup, ranks: Sequence[int], make: Callable[[str, list[int]], Any]
) -> dist.ProcessGroup:
    """A group of some ranks of another one, on the devices that Unisono serves there.

    Args:
        parent: The other group.
        ranks: Its ranks that are in the new one, in order.
        make: Makes the backend, from the group's name and its ranks of the job.
    """
    of_job = dist.get_process_group_ranks(parent)
    members = [of_job[rank] for rank in ranks]
    name = c10d._process_group_name(members, use_hashed_name=True)
    backend = make(name, members)
    _, store = c10d._world.pg_map[parent]
    group = dist.ProcessGroup(store, backend.rank(), backend.size())
    for device in ("cpu", "cuda"):
        if _backend_for(parent, device) is not None:
            group._register_backend(torch.device(device), _CUSTOM, backend)
    group._set_default_backend(_CUSTOM)
    group._set_group_name(name)
    group._set_group_desc(f"{parent.group_name}:shrunk")
    _register(group, name, parent, list(ranks))
    return group


def _register(
    group: dist.ProcessGroup, name: Any, parent: dist.ProcessGroup, ranks: Sequence[int]
) -> None:
    """Makes a group known to PyTorch, as all that torch.distributed makes are.

    Args:
        name: A str; PyTorch 2.13 calls its type GroupName, 2.11 does not know that.
    """
    group.bound_device_id = parent.bound_device_id
    world = c10d._world
    backend, store = world.pg_map[parent]
    world.pg_map[group] = (backend, PrefixStore(f"{name}/", store))
    world.pg_names[group] = name
    world.pg_backend_config[group] = world.pg_backend_config[parent]
    job_ranks = {own: of_job for of_job, own in world.pg_group_ranks[parent].items()}
    world.pg_group_ranks[group] = {job_ranks[rank]: own for own, rank in enumerate(ranks)}
    tag = f"ptd:{name}"
    world.pg_to_tag[group] = tag
    world.tags_to_pg.setdefault(tag, []).append(group)
    _register_process_group(name, group)
    if hasattr(c10d, "_maybe_attach_flight_recorder"):  # PyTorch 2.15 and newer
        c10d.HealthCheckHook.attach(group)
        c10d._maybe_attach_flight_recorder(
            group,
            c10d.BackendConfig(c10d.Backend(world.pg_backend_config[group])),
            dist.get_process_group_ranks(group),
        )
