"""What the programs share: checks that run one after another and are reported one by one."""

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist

CHECKS: dict[str, Callable[[], None]] = {}
DEVICE = os.environ.get("DEVICE", "cpu")  # where tensors are: "cpu" or "cuda"


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a check. It raises if something is wrong."""
    CHECKS[function.__name__] = function
    return function


def on_host(function: Callable[[], None]) -> Callable[[], None]:
    """Of a check: its tensors are the CPU's, whatever the others' are."""

    @functools.wraps(function)
    def wrapped() -> None:
        with torch.device("cpu"):
            function()

    return wrapped


def use_device() -> torch.device:
    """Has all tensors made on DEVICE, which this names: of several GPUs the rank's own."""
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.set_default_device("cuda")
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def report(name: str, text: str = "") -> None:
    """One check's outcome on this rank: an empty text is good."""
    sys.stdout.write("report " + json.dumps([name, text]) + "\n")
    sys.stdout.flush()


def run_all() -> None:
    """Runs all checks. One that fails on a rank may leave the others waiting for their timeout."""
    for name, function in CHECKS.items():
        generator().manual_seed(1234 + len(name))
        try:
            function()
            report(name)
        except Exception:
            report(name, traceback.format_exc()[-2000:])


def rank() -> int:
    """This process's rank in the job."""
    return int(os.environ["RANK"])


def size() -> int:
    """The job's number of ranks."""
    return int(os.environ["WORLD_SIZE"])


_generator = torch.Generator("cpu")


def generator() -> torch.Generator:
    """Random numbers that are the same on all ranks."""
    return _generator


def of_rank(other: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a rank contributes, which every rank can compute: small whole numbers, so that sums are
    exact in any order."""
    numbers = torch.Generator("cpu").manual_seed(77 * other + sum(shape))
    return torch.randint(1, 4, shape, generator=numbers, device="cpu").to(DEVICE, dtype)


def mine(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What this rank contributes."""
    return of_rank(dist.get_rank(), shape, dtype)


def all_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """What all ranks contribute."""
    return [of_rank(other, shape, dtype) for other in range(dist.get_world_size())]


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Bit for bit, shape and type included."""
    assert got.dtype == expected.dtype, f"{got.dtype} is not {expected.dtype}"
    assert got.shape == expected.shape, f"{got.shape} is not {expected.shape}"
    assert torch.equal(got, expected), f"got\n{got}\nexpected\n{expected}"
