"""Measures how long a start takes while strangers connect.

    python bench/init/strangers.py [--repeats 5] [--out FILE]

Rank 0 opens the port of a job; strangers connect to it and say nothing; then all ranks call
unisono.init(), and the slowest counts. Three cases: no strangers, `--idle` connections that stay,
and `--flood` connections in `--seconds`, each from one of 250 addresses of the loopback range.
"""

import argparse
import json
import multiprocessing
import os
import secrets
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_SECONDS = 60
# Connections of the flood that are open at a time.
OPEN = 400
RANK = """
import sys, time
import unisono
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
comm = unisono.init(timeout=60)
print(time.monotonic() - began, flush=True)
"""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(port: int, number: int) -> socket.socket:
    """Starts to connect from the number's address; closing it leaves no TIME_WAIT behind."""
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stranger.setblocking(False)
    stranger.bind((f"127.0.0.{number % 250 + 2}", 0))
    with suppress(BlockingIOError):
        stranger.connect(("127.0.0.1", port))
    return stranger


def flood(port: int, number: int, seconds: float, opened: "multiprocessing.Queue[int]") -> None:
    """Opens so many connections in so much time, evenly; reports how many it could."""
    began = time.monotonic()
    waiting: list[socket.socket] = []
    done = 0
    while done < number and (now := time.monotonic() - began) < seconds:
        if done >= number * now / seconds:
            time.sleep(0.0005)
            continue
        with suppress(OSError):
            waiting.append(connect(port, done))
        done += 1
        if len(waiting) > OPEN:
            waiting.pop(0).close()
    opened.put(done)


@contextmanager
def idle(port: int, number: int) -> Iterator[None]:
    """So many connections that have been made, and stay."""
    with selectors.DefaultSelector() as made:
        strangers = [connect(port, index) for index in range(number)]
        for stranger in strangers:
            made.register(stranger, selectors.EVENT_WRITE)
        end = time.monotonic() + 1
        while made.get_map() and time.monotonic() < end:
            for key, _ in made.select(0.1):
                made.unregister(key.fileobj)
        yield
        for stranger in strangers:
            stranger.close()


def wait_for(port: int) -> None:
    """Returns once the port is open."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise TimeoutError(f"nobody opened port {port} within {MOST_SECONDS} s")


def start(ranks: int, case: str, arguments: argparse.Namespace) -> tuple[float, int]:
    """Seconds of the slowest of the ranks that join after rank 0, and connections of the flood."""
    port = free_port()
    common = {
        "UNISONO_WORLD_SIZE": str(ranks),
        "UNISONO_RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "UNISONO_SECRET": secrets.token_hex(16),
        "UNISONO_LOG": "off",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env={**os.environ, **common, "UNISONO_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    opened: multiprocessing.Queue[int] = multiprocessing.Queue()
    attacker = multiprocessing.Process(
        target=flood, args=(port, arguments.flood, arguments.seconds, opened)
    )
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()

        def go(some: list[subprocess.Popen[str]]) -> None:
            for process in some:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()

        def slowest(some: list[subprocess.Popen[str]]) -> float:
            texts = [process.stdout.readline() for process in some if process.stdout is not None]
            return max(float(text) for text in texts)

        go(processes[:1])
        wait_for(port)
        if case == "idle":
            with idle(port, arguments.idle):
                go(processes[1:])
                return slowest(processes[1:]), arguments.idle
        if case == "flood":
            attacker.start()
            time.sleep(arguments.seconds / 2)
        go(processes[1:])
        seconds = slowest(processes[1:])
        return seconds, opened.get(timeout=MOST_SECONDS) if case == "flood" else 0
    finally:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
            process.kill()
        if attacker.pid is not None:
            attacker.join(MOST_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--flood", type=int, default=163_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for case in ("quiet", "idle", "flood"):
        found = [start(arguments.ranks, case, arguments) for _ in range(arguments.repeats)]
        times = [seconds for seconds, _ in found]
        rows.append(
            {
                "case": case,
                "connections": min(number for _, number in found),
                "median_seconds": round(statistics.median(times), 3),
                "most_seconds": round(max(times), 3),
            }
        )
        print(
            f"{case:6} {rows[-1]['connections']:>7} connections: unisono.init() of "
            f"{arguments.ranks} ranks takes {rows[-1]['median_seconds']} s, "
            f"{rows[-1]['most_seconds']} s at most of {arguments.repeats}",
            flush=True,
        )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
