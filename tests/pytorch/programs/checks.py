"""What the programs share: checks that run one after another and are reported one by one."""

import json
import os
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a check. It raises if something is wrong."""
    CHECKS[function.__name__] = function
    return function


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


_generator = torch.Generator()


def generator() -> torch.Generator:
    """Random numbers that are the same on all ranks."""
    return _generator


def of_rank(other: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a rank contributes, which every rank can compute: small whole numbers, so that sums are
    exact in any order."""
    numbers = torch.Generator().manual_seed(77 * other + sum(shape))
    return torch.randint(1, 4, shape, generator=numbers).to(dtype)


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
