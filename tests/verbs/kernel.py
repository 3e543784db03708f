"""The user-mode kernel with soft-RoCE: built from Debian's source package and kept in a cache.

The cache is outside the clone. An entry is named by the version of the source package and a digest
of the configuration, so that another option leads to another kernel. Nothing is installed: packages
are downloaded and unpacked.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE_PACKAGE = "linux-source-6.1"
# These generate the parser of Kconfig; they are unpacked where they are not installed.
GENERATORS = ("flex", "bison", "m4")
GENERATORS_PACKAGES = (*GENERATORS, "libfl2")
NEEDED_PROGRAMS = (
    "apt-get", "apt-cache", "dpkg-deb", "make", "gcc", "ld", "strip", "bc", "perl", "xz", "tar",
)  # fmt: skip
# Building needs some 8 CPU minutes. The deadlines also suit a busy machine.
BUILD_SECONDS = 3600
STEP_SECONDS = 600

OPTIONS = (
    # What glibc, bash, Python and iproute2 call.
    "64BIT BINFMT_ELF BINFMT_SCRIPT MULTIUSER FUTEX EPOLL SIGNALFD TIMERFD EVENTFD SHMEM AIO",
    "SYSVIPC POSIX_TIMERS POSIX_MQUEUE HIGH_RES_TIMERS NO_HZ_IDLE FILE_LOCKING INOTIFY_USER",
    "MEMBARRIER RSEQ ADVISE_SYSCALLS MEMFD_CREATE CROSS_MEMORY_ATTACH",
    "NAMESPACES PID_NS IPC_NS UTS_NS NET_NS",
    # File systems.
    "PROC_FS PROC_SYSCTL SYSFS TMPFS DEVTMPFS HOSTFS OVERLAY_FS",
    # The console.
    "PRINTK BUG TTY UNIX98_PTYS STDERR_CONSOLE NULL_CHAN FD_CHAN",
    # The network.
    "NET UNIX PACKET INET IPV6 IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES NETDEVICES NET_CORE VETH",
    "BRIDGE NET_SCHED NET_SCH_NETEM",
    # Verbs, which need memory-mapped devices: this kernel has them only with its emulated PCI bus.
    "VIRTIO_MENU VIRTIO_UML PCI UML_PCI_OVER_VIRTIO NET_UDP_TUNNEL CRYPTO CRYPTO_CRC32 INFINIBAND",
    "INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD INFINIBAND_ADDR_TRANS RDMA_RXE",
)
VALUES = (
    "CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID=1234",
    'CONFIG_CON_ZERO_CHAN="fd:0,fd:1"',
    'CONFIG_CON_CHAN="null"',
)


class MissingError(Exception):
    """This machine cannot have the kernel; the text names what is missing."""


def configuration() -> str:
    """The options that differ from those of `make allnoconfig`."""
    enabled = [f"CONFIG_{name}=y" for line in OPTIONS for name in line.split()]
    return "\n".join([*enabled, *VALUES]) + "\n"


def cache_folder() -> Path:
    """Where kernels are kept, for all clones of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "unisono" / "user-mode-kernels"


def _digest() -> str:
    return hashlib.sha256(configuration().encode()).hexdigest()[:12]


def cached() -> Path | None:
    """The newest kernel of this configuration in the cache; None if there is none.

    It stays in use when a newer source package appears, so no package index is needed.
    """
    kept = cache_folder().glob(f"*-{_digest()}/linux")
    return max(kept, key=lambda kernel: kernel.stat().st_mtime, default=None)


def _run(
    command: list[str], folder: Path, seconds: float, environment: dict[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"'{command[0]}' did not end within {seconds:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
        raise MissingError(f"'{' '.join(command[:4])}' failed: {last[0]}")
    return done.stdout


def _source_version() -> str:
    """The version of the source package that apt offers."""
    lacking = [program for program in NEEDED_PROGRAMS if shutil.which(program) is None]
    if lacking:
        raise MissingError(f"building the user-mode kernel needs {', '.join(lacking)}")
    policy = _run(["apt-cache", "policy", SOURCE_PACKAGE], Path("/"), STEP_SECONDS)
    found = re.search(r"Candidate: (\S+)", policy)
    if found is None or found[1] == "(none)":
        raise MissingError(f"apt has no package {SOURCE_PACKAGE}; run `apt-get update` first")
    return found[1]


def _unpack(packages: tuple[str, ...], folder: Path) -> Path:
    """Downloads packages and unpacks them into a folder that stands for the root."""
    downloads, root = folder / "packages", folder / "root"
    downloads.mkdir(exist_ok=True)
    _run(["apt-get", "-qq", "download", *packages], downloads, STEP_SECONDS)
    for package in downloads.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(root)], folder, STEP_SECONDS)
        package.unlink()
    return root


def _with_generators(folder: Path) -> dict[str, str]:
    """The environment in which `make` finds what generates Kconfig's parser."""
    environment = dict(os.environ)
    if any(shutil.which(program) is None for program in GENERATORS):
        programs = _unpack(GENERATORS_PACKAGES, folder) / "usr"
        environment["PATH"] = f"{programs / 'bin'}:{environment['PATH']}"
        environment["M4"] = str(programs / "bin" / "m4")
        environment["BISON_PKGDATADIR"] = str(programs / "share" / "bison")
    return environment


def build() -> Path:
    """Builds the kernel, unless the cache has it, and returns its file.

    Raises MissingError where something that building needs is missing.
    """
    version = _source_version()
    kept = cache_folder() / f"{version}-{_digest()}" / "linux"
    if kept.exists():
        return kept
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="build.") as name:
        folder = Path(name)
        environment = _with_generators(folder)
        root = _unpack((f"{SOURCE_PACKAGE}={version}",), folder)
        source = folder / "source"
        source.mkdir()
        archive = root / "usr" / "src" / f"{SOURCE_PACKAGE}.tar.xz"
        _run(["tar", "xf", str(archive), "--strip-components=1"], source, STEP_SECONDS)
        (source / "unisono.config").write_text(configuration())
        make = ["make", "-s", "ARCH=um"]
        chosen = ["KCONFIG_ALLCONFIG=unisono.config", "allnoconfig"]
        _run([*make, *chosen], source, STEP_SECONDS, environment)
        if "CONFIG_RDMA_RXE=y" not in (source / ".config").read_text().splitlines():
            raise MissingError(f"{SOURCE_PACKAGE} {version} cannot be configured with soft-RoCE")
        jobs = f"-j{os.cpu_count() or 1}"
        _run([*make, jobs, "linux"], source, BUILD_SECONDS, environment)
        _run(["strip", "linux"], source, STEP_SECONDS)
        kept.parent.mkdir(exist_ok=True)
        # The rename is atomic, so two builds at once cannot leave half a kernel.
        (source / "linux").rename(kept)
    return kept
