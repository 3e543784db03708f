"""Both builds of a gate: their sources, from git or from archives, and what is built from them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from store import AFTER, BEFORE

ROOT = Path(__file__).resolve().parents[2]
ISOLATION = Path(__file__).resolve().parent / "isolation"
# Both builds are measured by the same bench: what the gate's own checkout has.
SHARED_BENCH = ("call_bench.cc", "processes.h")
# The published ratios are to NCCL without NVLink multicast, which not every machine permits.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


class GateError(Exception):
    """A build or a run failed; the text says why."""


@dataclass(frozen=True)
class Build:
    """One of the two builds.

    Attributes:
        name: "before" or "after".
        commit: Its whole hash.
        folder: The folder that has `source`, `site` and `bench`.
    """

    name: str
    commit: str
    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def site(self) -> Path:
        return self.folder / "site"

    @property
    def call_bench(self) -> Path:
        return self.folder / "bench" / "call_bench"

    def environment(self) -> dict[str, str]:
        """The variables with which Python imports this build."""
        return NO_MULTICAST | os.environ | {"PYTHONPATH": f"{ISOLATION}:{self.site}"}


def git(*words: str, repository: Path | None = None) -> str:
    command = ["git", "-C", str(repository or ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise GateError("git is not installed") from None
    if done.returncode != 0:
        raise GateError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def archive_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.tar.gz"


def commit_of(revision: str, folder: Path) -> tuple[str, Path]:
    """The whole hash of a revision, and the repository that has it: ours, or a bundle's."""
    try:
        return git("rev-parse", "--verify", f"{revision}^{{commit}}"), ROOT
    except GateError as error:
        unknown = error
    for bundle in sorted(folder.glob("*.bundle")):
        clone = ROOT / "build" / "gate" / f"{bundle.stem}.git"
        if not clone.exists():
            clone.parent.mkdir(parents=True, exist_ok=True)
            git("clone", "--quiet", "--bare", str(bundle.resolve()), str(clone))
        try:
            return git("rev-parse", "--verify", f"{revision}^{{commit}}", repository=clone), clone
        except GateError:
            continue
    raise GateError(f"{revision} is in no repository and in no bundle of {folder}: {unknown}")


def pack(folder: Path, revisions: dict[str, str]) -> dict[str, str]:
    """Writes both sources and gate.json, with which a machine without git builds them.

    Returns:
        The whole hashes, by "before" and "after".
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "gate.json"
    known = json.loads(note.read_text()) if note.exists() else {}
    if known and known["revisions"] != revisions:
        raise GateError(f"{folder} compares {known['revisions']}, not {revisions}")
    if known and all(archive_of(folder, name).exists() for name in revisions):
        for name, revision in revisions.items():
            refuse_moved(folder, revision, known["commits"][name])
        return dict(known["commits"])
    commits = {}
    for name, revision in revisions.items():
        commits[name], repository = commit_of(revision, folder)
        target = str(archive_of(folder, name).resolve())
        git("archive", "--format=tar.gz", "-o", target, commits[name], repository=repository)
    note.write_text(json.dumps({"revisions": revisions, "commits": commits}, indent=1) + "\n")
    return commits


def refuse_moved(folder: Path, revision: str, commit: str) -> None:
    """GateError where a name means another commit than when the folder was begun."""
    try:
        now, _ = commit_of(revision, folder)
    except GateError:
        return  # A machine without git cannot say.
    if now != commit:
        raise GateError(f"{revision} was {commit} and is {now}; begin with another folder")


def builds_of(commits: dict[str, str], *, cuda: bool) -> tuple[Build, Build]:
    """Where both are built; commits keep their builds."""
    base = ROOT / "build" / "gate"
    suffix = "-cuda" if cuda else ""
    before, after = (
        Build(name, commits[name], base / f"{commits[name][:16]}{suffix}")
        for name in (BEFORE, AFTER)
    )
    return before, after


def make(build: Build, folder: Path, *, cuda: bool, log: Path) -> float:
    """Builds what is measured; the seconds that it took, 0 if it was there already."""
    began = time.monotonic()
    mark = build.folder / "done"
    if mark.exists():
        return 0.0
    shutil.rmtree(build.folder, ignore_errors=True)
    build.source.mkdir(parents=True)
    with tarfile.open(archive_of(folder, build.name)) as archive:
        archive.extractall(build.source, filter="data")
    share_bench(build.source)
    environment = dict(os.environ)
    if shutil.which("ccache"):
        environment.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    install = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"),
        *("--no-index", "--upgrade", "--target", str(build.site)),
        *(["--config-settings=cmake.define.UNISONO_CUDA=ON"] if cuda else []),
        ".",
    ]
    run_logged(install, build.source, environment, log)
    if not cuda:
        place = str(build.call_bench.parent)
        configure = ["cmake", "-S", ".", "-B", place, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        run_logged([*configure, "-DUNISONO_BUILD_TESTS=OFF"], build.source, environment, log)
        target = ["cmake", "--build", place, "--target", "call_bench"]
        run_logged(target, build.source, environment, log)
    where = [sys.executable, "-c", "import unisono; print(unisono.__file__)"]
    found = subprocess.run(where, env=build.environment(), capture_output=True, text=True)
    if not found.stdout.startswith(str(build.site)):
        raise GateError(f"Python imports {found.stdout.strip()}, not {build.site}{found.stderr}")
    mark.touch()
    return time.monotonic() - began


def share_bench(source: Path) -> None:
    """Copies the bench of calls to where a source has its own; older ones have it in bench."""
    place = source / "bench" / "cpu"
    if not (place / SHARED_BENCH[0]).exists():
        place = source / "bench"
    for name in SHARED_BENCH:
        shutil.copy2(ROOT / "bench" / "cpu" / name, place / name)


def run_logged(command: list[str], place: Path, environment: dict[str, str], log: Path) -> None:
    """Runs a command of a build; its output goes to the log."""
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        done = subprocess.run(
            command, cwd=place, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        raise GateError(f"{command[0]} exited with {done.returncode}; {log} has its output")
