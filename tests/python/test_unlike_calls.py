"""Processes whose calls do not match are told both calls, and get no wrong data."""

from __future__ import annotations

from pathlib import Path

import pytest
from python.jobs import NEVER, run_job
from python.tiers import quick

# What the last rank calls, what the others call, and what the errors of all ranks must name.
UNLIKE = {
    "plan": (
        "comm.all_reduce(x, algorithm='one_shot', protocol='simple')",
        "comm.all_reduce(x, algorithm='ring', protocol='simple')",
        ("by plan one_shot, simple", "by plan ring, simple"),
    ),
    "protocol": (
        "comm.all_reduce(x, algorithm='ring', protocol='ll')",
        "comm.all_reduce(x, algorithm='ring', protocol='simple')",
        ("by plan ring, ll", "by plan ring, simple"),
    ),
    "type": (
        "comm.all_reduce(x.view(np.int32))",
        "comm.all_reduce(x)",
        ("all_reduce of 4 int32", "all_reduce of 4 float32"),
    ),
    "number": (
        "comm.all_reduce(x)",
        "comm.all_reduce(x[:0]), comm.all_reduce(x)",
        ("rank {last} calls all_reduce of 4 float32", " calls all_reduce of "),
    ),
    "order": (
        "comm.broadcast(x, last), comm.reduce(x, root=last)",
        "comm.reduce(x, root=last), comm.broadcast(x, last)",
        ("rank {last} calls ", " float32"),
    ),
}


@pytest.mark.parametrize("ranks", quick([2, 3], kept={3}))
@pytest.mark.parametrize("transport", quick(["shm", "socket"], kept={"socket"}))
@pytest.mark.parametrize("name", quick(UNLIKE, kept={"plan", "number"}))
def test_all_ranks_are_told_both_calls(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], name: str, transport: str, ranks: int
) -> None:
    of_last, of_others, named = UNLIKE[name]
    _, said = run_job(
        tmp_path,
        capfdbinary,
        f"""
        with unisono.init() as comm:
            last = comm.size - 1
            x = np.ones(4, np.float32)
            try:
                {of_last} if comm.rank == last else ({of_others})
                comm.barrier()
            except unisono.PeerError as error:
                print(error.reason, error.rank, error, flush=True)
        """,
        ranks,
        environment={"UNISONO_TRANSPORT": transport, "UNISONO_TIMEOUT": str(NEVER)},
    )
    assert len(said) == ranks, said
    for line in said:
        assert "] mismatch None " in line, line
        assert "ranks disagree on " in line, line
        for part in named:
            assert part.format(last=ranks - 1) in line, line


@pytest.mark.parametrize("transport", quick(["shm", "socket"], kept={"socket"}))
@pytest.mark.parametrize("kind", quick(["int32", "float16"], kept={"int32"}))
def test_a_message_is_not_received_as_another_type(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], transport: str, kind: str
) -> None:
    _, said = run_job(
        tmp_path,
        capfdbinary,
        f"""
        with unisono.init() as comm:
            sent = np.ones(4, np.float32)
            received = np.zeros(sent.nbytes, np.uint8).view({kind!r})
            try:
                if comm.rank == 0:
                    comm.send(sent, 1)
                else:
                    comm.recv(received, 0)
                    print("received", received)
            except unisono.PeerError as error:
                print(comm.rank, received.any(), error, flush=True)
        """,
        2,
        environment={"UNISONO_TRANSPORT": transport, "UNISONO_TIMEOUT": str(NEVER)},
    )
    assert any("] 1 False ranks disagree on a call: " in line for line in said), said
    count = 4 if kind == "int32" else 8
    for line in said:
        assert "a message of 4 float32" in line, line
        assert f"a message of {count} {kind}" in line, line
