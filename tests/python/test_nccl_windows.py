"""Windows, puts, signals and encryption between processes, through NCCL's interface."""

from __future__ import annotations

import textwrap

import pytest
from unisono.launcher import Outcome, launch

LIMIT_SECONDS = 180

# What every rank begins with: a communicator of all.
BEGIN = """
    import ctypes, os, sys
    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]
    class Wait(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int) for name in ("count", "peer", "signal", "context")]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["NCCL_COMM_ID"] = "127.0.0.1:" + os.environ["MASTER_PORT"]
    def check(result):
        if result != 0:
            sys.exit(f"{result}: {nccl.ncclGetLastError(None).decode()}")
    def begin():
        unique, comm = Id(), ctypes.c_void_p()
        check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
        check(nccl.ncclCommInitRank(ctypes.byref(comm), ranks, unique, rank))
        return comm
    size = ctypes.c_size_t
"""

PUTS = """
    comm = begin()
    memory, window = (ctypes.c_int * 1000)(), ctypes.c_void_p()
    check(nccl.ncclCommWindowRegister(
        comm, memory, size(ctypes.sizeof(memory)), ctypes.byref(window), 0))
    pointer = ctypes.c_void_p()
    check(nccl.ncclGetPeerDevicePointer(window, size(0), rank, ctypes.byref(pointer)))
    assert pointer.value == ctypes.addressof(memory)
    peer = (rank + 1) % ranks
    other = nccl.ncclGetPeerDevicePointer(window, size(0), peer, ctypes.byref(pointer))
    assert other != 0 and b"cannot access" in nccl.ncclGetLastError(None)
    next_rank, last = (rank + 1) % ranks, (rank - 1) % ranks
    for step in range(50):
        data = (ctypes.c_int * 500)(*range(1000 * step + rank, 1000 * step + rank + 500))
        check(nccl.ncclPutSignal(
            data, size(500), 2, next_rank, window, size(2000), 0, 0, 0, comm, None))
        check(nccl.ncclWaitSignal(1, ctypes.byref(Wait(1, last, 0, 0)), comm, None))
        expected = list(range(1000 * step + last, 1000 * step + last + 500))
        assert list(memory)[500:] == expected, f"step {step}"
        check(nccl.ncclSignal(last, 0, 0, 0, comm, None))
        check(nccl.ncclWaitSignal(1, ctypes.byref(Wait(1, next_rank, 0, 0)), comm, None))
    check(nccl.ncclCommDestroy(comm))
"""

# argv: the key of this rank, and what the settings must say.
ENCRYPTION = """
    class Encryption(ctypes.Structure):
        _fields_ = [("size", size), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                    ("mode", ctypes.c_int), ("key", ctypes.c_char_p)]
    key = os.environ["KEYS"].split(",")[rank].encode()
    check(nccl.ncclSetEncryption(ctypes.byref(Encryption(32, 0xCAFEBEEF, 23203, 1, key))))
    wire, length = ctypes.c_char_p(), ctypes.c_int()
    check(nccl.ncclParamGetParameter(b"UNISONO_WIRE", ctypes.byref(wire), ctypes.byref(length)))
    assert wire.value == b"encrypt", wire.value
    comm = begin()
    value = (ctypes.c_float * 3)(rank, rank, rank)
    check(nccl.ncclAllReduce(value, value, size(3), 7, 0, comm, None))
    assert value[0] == sum(range(ranks))
    check(nccl.ncclCommDestroy(comm))
"""

TIMEOUT = """
    comm = begin()
    if rank == 0:
        result = nccl.ncclWaitSignal(1, ctypes.byref(Wait(3, 1, 0, 0)), comm, None)
        assert result == 6, result
        sys.exit(nccl.ncclGetLastError(None).decode())
    nccl.ncclCommAbort(comm)
"""


def run(program: str, ranks: int, **environment: str) -> Outcome:
    command = ["-c", textwrap.dedent(BEGIN) + textwrap.dedent(program)]
    return launch(
        command,
        ranks,
        preload_nccl=True,
        prefix_output=False,
        timeout=LIMIT_SECONDS,
        environment={"UNISONO_NCCL_HOST_MEMORY": "1", **environment},
    )


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_put_into_each_others_windows(ranks: int) -> None:
    outcome = run(PUTS, ranks)
    assert outcome.ok, outcome.message


def test_a_wait_for_signals_ends(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    outcome = run(TIMEOUT, 2, UNISONO_TIMEOUT="1s")
    assert not outcome.ok
    # Of the two that wait, one may be told that the other has given up, or was aborted, and be the
    # only one whose words are here.
    said = capfdbinary.readouterr().err.decode()
    assert "signal" in said or "abort" in said


@pytest.mark.slow
def test_ranks_with_one_key_meet() -> None:
    outcome = run(ENCRYPTION, 2, KEYS=",".join(["a key of many characters"] * 2))
    assert outcome.ok, outcome.message


@pytest.mark.slow
def test_ranks_with_different_keys_do_not(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    keys = "a key of many characters,another one of them"
    outcome = run(ENCRYPTION, 2, KEYS=keys, UNISONO_BOOTSTRAP_TIMEOUT="60s")
    assert not outcome.ok
    assert "secret" in capfdbinary.readouterr().err.decode()
