"""Two hosts on one network, each with what hosts of clusters have beside it.

By default that is a bridge as Docker makes it before all other interfaces. The bridges have the
same address, so that what listens there is not reached from the other host.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BRIDGE = "172.17.0.1"
_DOCKER = (
    "link add docker0 type bridge",
    f"address add {BRIDGE}/16 dev docker0",
    "link set docker0 up",
)
# A network of a host's own, with a carrier: nothing of it leads to the other host.
_BLIND = (
    "link add mgmt0 type veth peer name mgmt0p",
    "address add 192.168.7.{own}/24 dev mgmt0",
    "link set mgmt0p up",
    "link set mgmt0 up",
)


@dataclass(frozen=True)
class Network:
    """What two hosts, 1 and 2, have. In commands of `ip`, {own} and {other} are their numbers.

    Attributes:
        address: By which one host reaches the other, of eth0 unless `before` makes it.
        before: What is made before that network, on each host.
        after: What is made then.
        other_order: What is made after that on host 1, and before it on host 2.
    """

    address: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    other_order: tuple[str, ...] = ()

    def host(self, own: int) -> str:
        """The address of a host, without its prefix's length."""
        return self.address.format(own=own).split("/")[0]


NETWORKS = {
    "a bridge first": Network("10.1.0.{own}/24", _DOCKER),
    "a bridge with a container": Network(
        "10.1.0.{own}/24",
        (*_DOCKER, "link add inside type veth peer name outside", "link set outside master docker0",
         "link set outside up", "link set inside up"),
        ("route add default via 10.1.0.{other}",),
    ),
    "IPv6 alone": Network("fd00::{own}/64"),
    "IPv6 beside a bridge": Network("fd00::{own}/64", _DOCKER),
    "a network first that leads nowhere": Network(
        "10.1.0.{own}/24", _BLIND, ("route add default via 10.1.0.{other}",)
    ),
    "interfaces in another order on each host": Network(
        "10.1.0.{own}/24", (), ("route add default via 10.1.0.{other}",), _BLIND
    ),
    "addresses of one host each": Network(
        "10.1.0.{own}/32", (), ("route add 10.1.0.{other} dev eth0",)
    ),
    "an address that no cable has": Network(
        "10.9.0.{own}/32",
        ("address add 10.9.0.{own}/32 dev lo",),
        ("route add 10.9.0.{other} dev eth0 src 10.9.0.{own}",),
    ),
}  # fmt: skip


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def two_hosts(network: str | Network) -> Iterator[list[str]]:
    """The namespaces' names.

    Args:
        network: What they have; or how the addresses begin that they have beside a bridge.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    if isinstance(network, str):
        network = Network(f"{network}{{own}}/{64 if ':' in network else 24}", _DOCKER)
    names = [f"unisono-listening-{os.getpid()}-{host}" for host in (0, 1)]

    def make(host: int, commands: tuple[str, ...]) -> None:
        for command in commands:
            words = command.format(own=host + 1, other=2 - host)
            ip(*(["-6"] if words.startswith("route") and ":" in words else []),
               "-n", names[host], *words.split())  # fmt: skip

    with contextlib.ExitStack() as stack:
        for host, name in enumerate(names):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces: {error.stderr}")
            stack.callback(ip, "netns", "del", name)
            make(host, ("link set lo up", *network.before))
        make(1, network.other_order)
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", names[1])
        for host in (0, 1):
            nodad = " nodad" if ":" in network.address else ""
            if not any("address add " + network.address in made for made in network.before):
                make(host, (f"address add {network.address} dev eth0{nodad}",))
            make(host, ("link set eth0 up",))
        for host in (0, 1):
            make(host, network.after)
        make(0, network.other_order)
        yield names


def inside(names: list[str]) -> list[list[str]]:
    """For each rank, what runs a command on its host."""
    return [["ip", "netns", "exec", name] for name in names]


def named(names: list[str], network: Network, folder: Path) -> list[list[str]]:
    """The same on hosts node1 and node2, whose own name leads to 127.0.1.1, as Debian has it."""
    out = []
    for host, prefix in enumerate(inside(names)):
        own, other = host + 1, 2 - host
        hosts = folder / f"hosts-{own}"
        hosts.write_text(
            f"127.0.0.1 localhost\n127.0.1.1 node{own}.cluster node{own}\n"
            f"{network.host(other)} node{other}.cluster node{other}\n"
        )
        prepared = f"hostname node{own} && mount --bind {hosts} /etc/hosts && exec"
        words = ["unshare", "--uts", "--mount", "sh", "-c", f'{prepared} "$@"', "sh"]
        out.append([*prefix, *words])
    return out


def agent(prefixes: list[list[str]], addresses: list[str], folder: Path) -> Path:
    """What does for a launcher what ssh does: it runs a command on the host of an address."""
    cases = "\n".join(
        f'{address}|node{host + 1}) set -- {shlex.join(prefix)} sh -c "$*" ;;'
        for host, (prefix, address) in enumerate(zip(prefixes, addresses, strict=True))
    )
    path = folder / "agent"
    path.write_text(
        f"#!/bin/sh\nplace=$1\nshift\ncase $place in\n{cases}\n"
        '*) echo "there is no host $place" >&2; exit 1 ;;\nesac\nexec "$@"\n'
    )
    path.chmod(0o700)
    return path
