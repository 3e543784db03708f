"""Makes a netbed, and takes it down whatever happens."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from unisono.errors import MachineError
from unisono.files import write_whole
from unisono.netbed import guardian
from unisono.netbed.shape import Shape

_PREFIX = "unisono-bed-"
# A segment of TCP as the kernel hands it on has up to 64 KiB; what is cut smaller costs time.
_BURST_BYTES = 72 << 10
# What a switch holds for a link before it drops, as one with little memory does.
_QUEUE_BYTES = 4 << 20

# In every kernel. With BBR, which some hosts have as their default, streams that wait for each
# other in turn seem to need little, and get less than the links have.
_CONGESTION_CONTROL = "reno"
_CONTROL_FILE = "/proc/sys/net/ipv4/tcp_congestion_control"

_AGENT = """#!/bin/sh
case $1 in
{cases}
*) echo "there is no node $1" >&2; exit 1 ;;
esac
shift
exec ip netns exec $place unshare --uts sh -c "hostname $name && $*"
"""


class Netbed:
    """The network namespaces of a shape, for as long as the block lasts.

    Another process, the guardian, removes them when the block ends or this process does, even when
    it is killed. All that is left by a guardian which was killed too is removed by the next netbed.

    Raises:
        MachineError: Not root, a command is missing, or the kernel lacks what is needed.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._name = f"{_PREFIX}{os.getpid()}-{_start_time(os.getpid())}"
        self._switch = f"{self._name}-switch"
        self._guardian: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        _check_machine()
        remove_stale()
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", guardian.__file__, self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert self._guardian.stdout is not None
            self._guardian.stdout.readline()
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._guardian is None:
            return
        for pipe in (self._guardian.stdin, self._guardian.stdout):
            if pipe is not None:
                pipe.close()
        self._guardian.wait()
        self._guardian = None

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command that runs another one on a node."""
        return ["ip", "netns", "exec", self.namespace(node), *command]

    def write_agent(self, path: Path) -> None:
        """Writes a program that does for nodes what ssh does for hosts.

        `path ADDRESS COMMAND...` runs a shell's command on the node of this address (on its first
        rail), where the machine's name is node0, node1, ...: what launchers of other libraries
        start their part on each host with.
        """
        cases = "\n".join(
            f"{self.shape.address(node)}) name=node{node} place={self.namespace(node)} ;;"
            for node in range(self.shape.nodes)
        )
        write_whole(path, _AGENT.format(cases=cases), private=True)
        path.chmod(0o700)

    def variables(self, node: int) -> dict[str, str]:
        """What ranks on a node need in their environment."""
        addresses = [self.shape.address(node, rail) for rail in range(self.shape.rails)]
        return {"UNISONO_INTERFACE": addresses[0], "UNISONO_RAILS": ",".join(addresses[1:])}

    def cut(self, rail: int, *, silent: bool = False) -> None:
        """Cuts a rail of all nodes until `restore`.

        Args:
            rail: Its number.
            silent: The links stay up, and every packet vanishes at the switch. Otherwise the
                switch's ports go down, so that the nodes' interfaces lose their carrier.
        """
        self._set_ports(rail, "nomaster" if silent else "down")

    def restore(self, rail: int) -> None:
        """Undoes `cut`."""
        self._set_ports(rail, f"master bridge{rail} up")

    def _set_ports(self, rail: int, change: str) -> None:
        nodes = range(self.shape.nodes)
        _batch("ip", self._switch, [f"link set n{node}r{rail} {change}" for node in nodes])

    def namespace(self, node: int) -> str:
        """The name of a node's namespace, for `ip netns exec`."""
        return f"{self._name}-node{node}"

    def _make(self) -> None:
        shape, switch = self.shape, self._switch
        _run("ip", "netns", "add", switch)
        for node in range(shape.nodes):
            _run("ip", "netns", "add", self.namespace(node))
        _batch("ip", switch, self._switch_links())
        for node in range(shape.nodes):
            _batch("ip", self.namespace(node), self._node_links(node))
            _run(*self.command(node, ["sh", "-c", f"echo {_CONGESTION_CONTROL} > {_CONTROL_FILE}"]))
        if not shape.rates:
            return
        rates = list(enumerate(shape.rates))
        for node in range(shape.nodes):
            _batch("tc", switch, [_shaped(f"n{node}r{rail}", rate) for rail, rate in rates])
            _batch(
                "tc", self.namespace(node), [_shaped(f"rail{rail}", rate) for rail, rate in rates]
            )

    def _switch_links(self) -> Iterable[str]:
        for rail in range(self.shape.rails):
            yield f"link add bridge{rail} type bridge forward_delay 0"
            yield f"link set bridge{rail} up"
            for node in range(self.shape.nodes):
                port, far = f"n{node}r{rail}", self.namespace(node)
                yield f"link add {port} type veth peer name rail{rail} netns {far}"
                yield f"link set {port} master bridge{rail} up"

    def _node_links(self, node: int) -> Iterable[str]:
        yield "link set lo up"
        for rail in range(self.shape.rails):
            yield f"address add {self.shape.address(node, rail)}/24 dev rail{rail}"
            yield f"link set rail{rail} up"


def remove_stale() -> list[str]:
    """Removes the namespaces of netbeds whose makers have died; their names."""
    removed = []
    for name in guardian.names(_PREFIX):
        pid, start_time = name.removeprefix(_PREFIX).split("-")[:2]
        if _start_time(int(pid)) != start_time:
            guardian.remove(name)
            removed.append(name)
    return removed


def _shaped(device: str, rate: int) -> str:
    return (
        f"qdisc add dev {device} root tbf rate {rate}bit burst {_BURST_BYTES} limit {_QUEUE_BYTES}"
    )


def _start_time(pid: int) -> str:
    """When a process started; "" if it is gone. A later process may have its PID."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise MachineError("a netbed needs root, to make network namespaces; run it with sudo")
    missing = [name for name in ("ip", "tc") if not shutil.which(name)]
    if missing:
        raise MachineError(
            f"a netbed needs the command{'s' * (len(missing) > 1)} {' and '.join(missing)}; "
            "install iproute2"
        )


def _run(*command: str, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise MachineError(f"'{' '.join(command)}' failed: {said}")


def _batch(program: str, namespace: str, lines: Iterable[str]) -> None:
    """Runs many commands of `ip` or `tc` in a namespace as one process."""
    _run(program, "-n", namespace, "-batch", "-", text="".join(line + "\n" for line in lines))
