"""Runs a command in the user-mode kernel, over this machine's own root file system.

The guest sees all files of this machine. What it writes stays in its own memory, except in the
folder /job/results.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

GUEST = Path(__file__).resolve().parent / "guest"
# What the guest's scripts call before the command.
NEEDED_PROGRAMS = ("ip", "rdma", "mount", "chroot", "perl", "bash", "setsid")
NEEDED_LIBRARIES = ("libfabric.so.1", "librdmacm.so.1", "libibverbs.so.1")
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"
CONSOLE_LINES = 20
# The guest takes what it uses of it.
MEMORY_MIB = 2048
RANDOM_BYTES = 64


class NotStartedError(Exception):
    """The kernel does not start on this machine; the text has the last line of its console."""


class FailedError(Exception):
    """The guest did not run the command to its end; the text has the end of its console."""


@dataclass(frozen=True)
class Network:
    """Nodes with a network card on each rail; card r of node n has the address 10.77.r.(n + 1)."""

    nodes: int = 2
    rails: int = 1


@dataclass(frozen=True)
class Ended:
    """How a command ended in the guest, and what it printed."""

    code: int
    output: str


def missing() -> str | None:
    """What this machine lacks to run a guest, other than the kernel; None if nothing."""
    if os.uname().machine != "x86_64":
        return f"the user-mode kernel runs on x86_64, and this machine is {os.uname().machine}"
    if os.geteuid() != 0:
        return "only root can mount and add network cards in the guest, which runs as this user"
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}"
    programs = [name for name in NEEDED_PROGRAMS if shutil.which(name, path=path) is None]
    if programs:
        return f"the guest needs the programs {', '.join(programs)} (iproute2, perl)"
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    libraries = [name for name in NEEDED_LIBRARIES if name not in known]
    if not any(Path("/usr/lib").glob("*/libibverbs/librxe-*.so")):
        libraries.append("librxe")
    if libraries:
        return f"the guest needs {', '.join(libraries)} (libfabric1, librdmacm1, ibverbs-providers)"
    return None


def _write_job(
    job: Path, command: list[str], network: Network, environment: dict[str, str]
) -> None:
    (job / "results").mkdir()
    settings = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    settings += [f"nodes={network.nodes}", f"rails={network.rails}"]
    settings += [f"cd {shlex.quote(str(Path.cwd()))}"]
    (job / "settings").write_text("\n".join(settings) + "\n")
    (job / "command").write_text(shlex.join(command) + "\n")
    # A guest has no source of randomness, and every program would wait for it.
    (job / "randomness").write_bytes(os.urandom(RANDOM_BYTES))
    for script in ("init", "main", "network"):
        shutil.copy(GUEST / script, job / script)
        (job / script).chmod(0o755)


def _boot(linux: Path, job: Path, seconds: float) -> bool:
    """Runs the guest to its end; false if that was not within the deadline."""
    words = [str(linux), f"mem={MEMORY_MIB}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/"]
    words += ["ro", f"init={job}/init", f"job={job}", "con=null", "con0=null,fd:1"]
    words += [f"uml_dir={job}/kernel"]
    with (job / "console").open("w") as console:
        guest = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
        try:
            guest.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # The kernel has helper processes, which are of its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
    return True


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def run(
    linux: Path,
    command: list[str],
    *,
    seconds: float,
    network: Network,
    environment: dict[str, str],
    results: Path | None = None,
) -> Ended:
    """Boots the kernel, makes the network, and runs the command in the current folder.

    What the command writes to /job/results is copied to `results`. Raises NotStartedError where
    the guest did not begin, and FailedError where it does not end within the deadline or ends
    without the command's exit status.
    """
    with tempfile.TemporaryDirectory(prefix="unisono-verbs.") as name:
        job = Path(name)
        path = f"{os.environ['PATH']}:{SYSTEM_PROGRAMS}"
        home = os.environ.get("HOME", "/root")
        _write_job(job, command, network, {"PATH": path, "HOME": home, **environment})
        in_time = _boot(linux, job, seconds)
        lines = _text(job / "console").splitlines()
        if not (job / "output").exists():
            last = "".join(lines[-1:]) or "its console is empty"
            raise NotStartedError(f"the user-mode kernel does not start on this machine: {last}")
        if results is not None:
            shutil.copytree(job / "results", results, dirs_exist_ok=True)
        output = _text(job / "output")
        status = _text(job / "status").strip()
        if status:
            return Ended(int(status), output)
        why = "ended without a status" if in_time else f"did not end within {seconds:g} s"
        console = "\n".join(lines[-CONSOLE_LINES:])
        raise FailedError(f"the guest {why}. The command:\n{output}\nThe console:\n{console}")
