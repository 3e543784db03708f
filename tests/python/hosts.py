"""Hosts for tests of launchers: network namespaces with names of their own, and Slurm on them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from unisono.errors import MachineError
from unisono.netbed import Netbed, parse_shape

LIMIT_SECONDS = 180
SLURM = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "PMI", "OMPI_", "UNISONO_")


def plain_environment(**more: str) -> dict[str, str]:
    """Of a process that no launcher started."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**kept, **more}


class Hosts:
    """Two hosts, node0 and node1, of two processors each; needs root."""

    shape = parse_shape("2x2", "", 1)

    def __init__(self, bed: Netbed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.addresses = [self.shape.address(node) for node in range(self.shape.nodes)]

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command that runs another one on a host, where Slurm finds what it looks for."""
        prepared = f'hostname node{node} && mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
        return self.bed.command(node, ["unshare", "--uts", "sh", "-c", prepared, "sh", *command])

    def start(self, node: int, command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        """Starts a command on a host, its outputs together."""
        return subprocess.Popen(
            self.command(node, command),
            env=plain_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def run(self, node: int, command: Sequence[str], **variables: str) -> tuple[int, str]:
        """Runs a command on a host: its exit code and its outputs together."""
        return finish(self.start(node, command, **variables))


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for a process: its exit code and its output."""
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        stop([process])
    return process.returncode, output


def stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ends processes and what they have started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        end = time.monotonic() + 2
        while time.monotonic() < end and any(one.poll() is None for one in processes):
            time.sleep(0.05)
    for process in processes:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def make_hosts(folder: Path) -> Iterator[Hosts]:
    """The hosts, for as long as the block lasts.

    Raises:
        MachineError: Not root, or the kernel lacks what is needed.
    """
    with Netbed(Hosts.shape) as bed:
        made = Hosts(bed, folder)
        if (found := made.run(0, ["true"]))[0]:
            raise MachineError(f"a namespace does not serve as a host: {found[1]}")
        yield made


@contextlib.contextmanager
def make_slurm(hosts: Hosts) -> Iterator[str]:
    """A cluster of the hosts under Slurm; the path of its configuration.

    Raises:
        MachineError: It is not installed, or does not start.
    """
    missing = [name for name in SLURM if shutil.which(name) is None]
    if missing:
        raise MachineError(f"{', '.join(missing)} of Slurm is not installed (slurm-wlm, munge)")
    folder = hosts.folder
    socket, configuration = folder / "munge.socket", folder / "slurm.conf"
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    configuration.write_text(_configuration(hosts, socket))
    # Neither processors nor memory are bound, so that it may lack all controllers.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    for name in ("state", "spool-node0", "spool-node1"):
        (folder / name).mkdir()
    munge = ["munged", "--foreground", "--force", f"--socket={socket}", f"--key-file={key}",
             f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/seed",
             f"--log-file={folder}/munge.log"]  # fmt: skip
    started = [hosts.start(0, munge)]
    try:
        _await(socket.exists, "munged", folder)
        daemons = [(0, ["slurmctld", "-D"])]
        daemons += [(node, ["slurmd", "-D", "-N", f"node{node}"]) for node in (0, 1)]
        for node, daemon in daemons:
            started.append(hosts.start(node, [*daemon, "-f", str(configuration)]))
        sinfo = ["sinfo", "--noheader", "--format=%T %D"]
        _await(
            lambda: hosts.run(0, sinfo, SLURM_CONF=str(configuration))[1].strip() == "idle 2",
            "a node", folder,
        )  # fmt: skip
        yield str(configuration)
    finally:
        stop(started)


def _configuration(hosts: Hosts, socket: Path) -> str:
    folder = hosts.folder
    text = f"""
        ClusterName=trial
        SlurmctldHost=node0({hosts.addresses[0]})
        AuthType=auth/munge
        AuthInfo=socket={socket}
        CredType=cred/munge
        SlurmUser=root
        SlurmdUser=root
        StateSaveLocation={folder}/state
        SlurmdSpoolDir={folder}/spool-%n
        SlurmctldPidFile={folder}/slurmctld.pid
        SlurmdPidFile={folder}/slurmd-%n.pid
        SlurmctldLogFile={folder}/slurmctld.log
        SlurmdLogFile={folder}/slurmd-%n.log
        ProctrackType=proctrack/linuxproc
        TaskPlugin=task/none
        SelectType=select/cons_tres
        SelectTypeParameters=CR_Core
        ReturnToService=2
        MpiDefault=none
        SlurmdParameters=config_overrides
        PartitionName=all Nodes=ALL Default=YES State=UP
    """
    nodes = (
        f"NodeName=node{node} NodeHostname=node{node} NodeAddr={address} Port=17003 CPUs=2\n"
        for node, address in enumerate(hosts.addresses)
    )
    return textwrap.dedent(text) + "".join(nodes)


def _await(is_there: object, what: str, folder: Path) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not is_there():  # type: ignore[operator]
        if time.monotonic() > end:
            logs = "".join(path.read_text()[-500:] for path in sorted(folder.glob("*.log")))
            raise MachineError(f"{what} of Slurm did not come: {logs}")
        time.sleep(0.2)
