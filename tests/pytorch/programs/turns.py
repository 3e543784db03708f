"""Default groups that are made and destroyed in turn on one port, of one backend or of two."""

import datetime
import time

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401
from checks import check, rank, run_all, size

LIMIT = datetime.timedelta(seconds=60)
SUM = size() * (size() + 1) / 2


def group_of(backend: str, late: int | None = None) -> None:
    """Makes a default group, uses it, and destroys it; one rank may be late to do so."""
    dist.init_process_group(backend, timeout=LIMIT)
    x = torch.full((3,), rank() + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [SUM] * 3, x
    if rank() == late:
        time.sleep(0.3)
    dist.destroy_process_group()


@check
def the_rank_that_holds_the_store_leaves_last():
    for _ in range(3):
        group_of("unisono", late=0)


@check
def the_rank_that_holds_the_store_leaves_first():
    for _ in range(3):
        group_of("unisono", late=size() - 1)


@check
def all_leave_at_once():
    for _ in range(5):
        group_of("unisono")


@check
def backends_take_turns():
    for backend in ("gloo", "unisono", "gloo", "unisono"):
        group_of(backend, late=0)


@check
def a_group_that_the_program_still_holds_keeps_the_store_for_the_next():
    held = []
    for _ in range(3):
        dist.init_process_group("unisono", timeout=LIMIT)
        held.append(dist.new_group())
        dist.all_reduce(torch.ones(3), group=held[-1])
        if rank() == 0:
            time.sleep(0.1)
        dist.destroy_process_group()
    held.clear()
    group_of("unisono")


if __name__ == "__main__":
    run_all()
