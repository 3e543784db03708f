"""What a rank's collectives did and when: from Unisono's record, or PyTorch's profiler for Gloo."""

import time
from abc import ABC, abstractmethod

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

# A collective: its name, its start and its end, in seconds from the start of the recording.
Call = tuple[str, float, float]

_ANCHOR = "train_gpt: start"


class Recorder(ABC):
    """Records the collectives between start and stop; all ranks start at the same time."""

    def __init__(self) -> None:
        self._started = 0.0

    def start(self) -> None:
        """Begins, on all ranks at once."""
        dist.barrier()
        self._started = time.monotonic()
        self._begin()

    def stop(self) -> tuple[list[Call], float]:
        """The calls in the order of their starts, and how long the recording was, in seconds."""
        seconds = time.monotonic() - self._started
        return sorted(self._calls(), key=lambda call: call[1]), seconds

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _calls(self) -> list[Call]: ...


class UnisonoRecorder(Recorder):
    """Reads each communicator's record, which is kept in any case."""

    def _begin(self) -> None: ...

    def _calls(self) -> list[Call]:
        from unisono.torch import communicator

        groups = list(dist.distributed_c10d._world.pg_map)
        calls = []
        for group in groups:
            if dist.get_backend(group) != "unisono":
                continue
            for entry in communicator(group).record()["collectives"]:
                start = entry["scheduled_ns"] * 1e-9 - self._started
                if start >= 0 and entry.get("ended_ns"):
                    end = entry["ended_ns"] * 1e-9 - self._started
                    calls.append((entry["collective"], start, end))
        return calls


class GlooRecorder(Recorder):
    """Takes PyTorch's events of the name "gloo:...", each from its call to its end."""

    def _begin(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.__enter__()
        with record_function(_ANCHOR):
            pass

    def _calls(self) -> list[Call]:
        self._profile.__exit__(None, None, None)
        events = self._profile.events() or []
        zero = next(event.time_range.start for event in events if event.name == _ANCHOR)
        return [
            (
                event.name.removeprefix("gloo:"),
                (event.time_range.start - zero) * 1e-6,
                (event.time_range.end - zero) * 1e-6,
            )
            for event in events
            if event.name.startswith("gloo:")
        ]


def make_recorder(backend: str) -> Recorder:
    """The recorder for a backend."""
    return UnisonoRecorder() if backend == "unisono" else GlooRecorder()
