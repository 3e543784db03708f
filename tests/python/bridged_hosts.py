"""Two hosts on one network, each with a bridge as Docker makes it before all other interfaces.

The bridges have the same address, so that what listens there is not reached from the other host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

BRIDGE = "172.17.0.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def two_hosts(network: str) -> Iterator[list[str]]:
    """The namespaces' names; their addresses on the network between them end in 1 and 2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    names = [f"unisono-listening-{os.getpid()}-{host}" for host in (0, 1)]
    prefix = f"{network}/{64 if ':' in network else 24}"
    with contextlib.ExitStack() as stack:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces: {error.stderr}")
            stack.callback(ip, "netns", "del", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "address", "add", f"{BRIDGE}/16", "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", names[1])
        for host, name in enumerate(names):
            address = prefix.replace("/", f"{host + 1}/")
            nodad = ["nodad"] if ":" in network else []
            ip("-n", name, "address", "add", address, "dev", "eth0", *nodad)
            ip("-n", name, "link", "set", "eth0", "up")
        yield names


def inside(names: list[str]) -> list[list[str]]:
    """For each rank, what runs a command on its host."""
    return [["ip", "netns", "exec", name] for name in names]
