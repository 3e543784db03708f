"""How the ranks that a launcher started find each other, and where their secret is from.

Launchers are imitated by processes of this host with their variables; a real mpiexec joins in where
one is installed. tests/comm_join/launchers_test.cc has what is said to a launcher in detail.
"""

import ctypes.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from python.fake_pmi import FakePmi

# Twice, because a second communicator must not read what was left for the first.
PROGRAM = """
import numpy as np, sys, unisono
for turn in range(2):
    with unisono.init(timeout=120, bootstrap_timeout=120) as comm:
        total = comm.all_reduce(np.array([comm.rank + 1 + turn]))[0]
        print(f"rank {comm.rank} of {comm.size}: {total}", flush=True)
assert "mpi4py" not in sys.modules
"""
# MPI speaks PMI over the same descriptor.
WITH_MPI = """
import ctypes, sys, unisono
mpi = ctypes.CDLL(sys.argv[1])
if sys.argv[2] == "unisono first":
    with unisono.init(timeout=120, bootstrap_timeout=120):
        print("joined", flush=True)
assert mpi.MPI_Init(None, None) == 0
try:
    unisono.init(timeout=120, bootstrap_timeout=120)
except unisono.MisuseError as error:
    print(error, flush=True)
assert mpi.MPI_Finalize() == 0
"""
WRONG_WORDS = ["x,y", "file:///x,s", "tcp://127.0.0.1:1,"]
OF_LAUNCHERS = re.compile(r"RANK|WORLD_SIZE|MASTER_|TORCH|PMIX?_|OMPI_|SLURM_|UNISONO_")


def plain_environment(**more: str) -> dict[str, str]:
    """Of a process that no launcher started."""
    kept = {name: text for name, text in os.environ.items() if not OF_LAUNCHERS.match(name)}
    return {**kept, **more}


def joined(size: int) -> list[str]:
    """What the ranks of PROGRAM print, sorted."""
    total = size * (size + 1) // 2
    return sorted(
        f"rank {rank} of {size}: {total + turn * size}" for rank in range(size) for turn in (0, 1)
    )


def said(outputs: list[tuple[int, str]]) -> list[str]:
    """The lines about ranks, sorted; all ranks must have ended well."""
    assert [code for code, _ in outputs] == [0] * len(outputs), outputs
    return sorted(re.findall(r"rank \d of \d: \d+", "".join(text for _, text in outputs)))


def run_all(
    program: str, environments: list[dict[str, str]], timeout: float = 180
) -> list[tuple[int, str]]:
    """Runs a program with each environment at once; exit codes and outputs."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in environments
    ]
    out = []
    for process in processes:
        try:
            text, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        out.append((process.returncode, text))
    return out


def write_secret(folder: Path) -> str:
    path = folder / "secret"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return str(path)


class TestPmi:
    """mpiexec of MPICH and its kin, srun --mpi=pmi2; without mpi4py."""

    def test_ranks_meet_with_a_fresh_secret_each_time(self) -> None:
        launcher = FakePmi(3)
        assert said(launcher.run(PROGRAM, plain_environment())) == joined(3)
        told = [value.split(",") for value in launcher.said.values()]
        assert len(told) == 2
        assert all(re.fullmatch(r"tcp://[\d.]+:\d+", where) for where, _ in told)
        assert all(re.fullmatch(r"[0-9a-f]{64}", secret) for _, secret in told)
        assert told[0][1] != told[1][1]
        assert launcher.finalized == 3

    @pytest.mark.slow
    def test_a_secret_of_the_users_goes_before_a_made_one(self, tmp_path: Path) -> None:
        launcher = FakePmi(2)
        environment = plain_environment(UNISONO_SECRET_FILE=write_secret(tmp_path))
        assert said(launcher.run(PROGRAM, environment)) == joined(2)
        assert [value.split(",")[1] for value in launcher.said.values()] == ["-", "-"]

    def test_a_secret_that_only_rank_0_has_is_an_error_that_says_so(self) -> None:
        [(_, text)] = FakePmi(2, only=1, said={"unisono-0": "tcp://127.0.0.1:1,-"}).run(
            "import unisono; unisono.init(bootstrap_timeout=1000)", plain_environment()
        )
        assert "MachineError: rank 0 has a secret of its own" in text

    @pytest.mark.parametrize(
        "value",
        ["", *(pytest.param(one, marks=pytest.mark.slow) for one in WRONG_WORDS)],
    )
    def test_what_cannot_be_rank_0s_words_is_an_error(self, value: str) -> None:
        [(_, text)] = FakePmi(2, only=1, said={"unisono-0": value}).run(
            "import unisono; unisono.init(bootstrap_timeout=1000)", plain_environment()
        )
        assert (
            "PeerError: peer error (rank 0): the rendezvous that rank 0 published through PMI"
            in text
        )

    @pytest.mark.slow
    def test_a_rank_0_that_cannot_listen_ends_all_at_once(self) -> None:
        outputs = FakePmi(3).run(
            "import unisono; unisono.init(bootstrap_timeout=1000)",
            plain_environment(),
            lambda rank: {"UNISONO_INTERFACE": "192.0.2.1"} if rank == 0 else {},
        )
        assert "192.0.2.1" in outputs[0][1]
        for code, text in outputs[1:]:
            assert code != 0, text
            assert "PeerError: peer error (rank 0): rank 0 could not listen" in text, text

    @pytest.mark.slow
    def test_a_process_that_does_not_come_is_a_timeout(self) -> None:
        outputs = FakePmi(2).run(
            "import os, time, unisono\n"
            "if os.environ['PMI_RANK'] == '1': time.sleep(4)\n"
            "else: unisono.init(bootstrap_timeout=1)",
            plain_environment(),
        )
        assert "CollectiveTimeoutError: timeout: not all of the 2 processes" in outputs[0][1]

    @pytest.mark.slow
    def test_fewer_ranks_than_processes_are_refused(self) -> None:
        outputs = FakePmi(3).run(
            "import unisono; unisono.init(bootstrap_timeout=5)",
            plain_environment(UNISONO_WORLD_SIZE="2", UNISONO_RANK="0"),
        )
        for _, text in outputs:
            assert "MisuseError" in text, text
            assert "PMI_SIZE" in text, text

    @pytest.mark.slow
    def test_settings_and_arguments_go_before_the_launcher(self, tmp_path: Path) -> None:
        launcher = FakePmi(2)
        place = f"file://{tmp_path}/meet"
        environment = plain_environment(UNISONO_RENDEZVOUS=place)
        assert said(launcher.run(PROGRAM, environment)) == joined(2)
        assert launcher.said == {}

    @pytest.mark.parametrize("launcher", ["mpiexec.hydra", "mpiexec.mpich"])
    def test_a_real_mpiexec(self, launcher: str) -> None:
        if shutil.which(launcher) is None:
            pytest.skip(f"{launcher} is not installed: tools/install_peers mpich")
        done = subprocess.run(
            [launcher, "-n", "3", sys.executable, "-c", PROGRAM],
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert sorted(re.findall(r"rank \d of \d: \d+", done.stdout)) == joined(3)

    @pytest.mark.parametrize("order", ["MPI first", "unisono first"])
    def test_mpi_in_the_same_program_keeps_its_connection(self, order: str) -> None:
        library = ctypes.util.find_library("mpich")
        if library is None or shutil.which("mpiexec.hydra") is None:
            pytest.skip("MPICH is not installed: tools/install_peers mpich")
        done = subprocess.run(
            ["mpiexec.hydra", "-n", "2", sys.executable, "-c", WITH_MPI, library, order],
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("MPI is initialised in this process") == 2
        assert done.stdout.count("joined") == (2 if order == "unisono first" else 0)


class TestSlurm:
    """srun without PMI: the ranks of a step meet in a folder of the user's shared home."""

    @staticmethod
    def environments(home: Path, size: int, **more: str) -> list[dict[str, str]]:
        return [
            plain_environment(
                HOME=str(home),
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(rank),
                SLURM_STEP_NUM_TASKS=str(size),
                SLURM_JOB_ID="4711",
                SLURM_STEP_ID="0",
                **more,
            )
            for rank in range(size)
        ]

    def test_ranks_meet_in_a_private_folder_and_leave_nothing_in_it(self, tmp_path: Path) -> None:
        assert said(run_all(PROGRAM, self.environments(tmp_path, 3))) == joined(3)
        folder = tmp_path / ".unisono"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []

    @pytest.mark.slow
    def test_what_a_killed_attempt_left_misleads_nobody(self, tmp_path: Path) -> None:
        first = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=self.environments(tmp_path, 2)[0]
        )
        folder = tmp_path / ".unisono"
        deadline = time.monotonic() + 120
        while len(list(folder.glob("*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
        first.wait()
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["slurm-4711-0-0-0", "slurm-4711-0-0-0.secret"]
        # The same names again, as in a step that was begun again; and a requeued job.
        assert said(run_all(PROGRAM, self.environments(tmp_path, 2))) == joined(2)
        requeued = self.environments(tmp_path, 2, SLURM_RESTART_COUNT="1")
        assert said(run_all(PROGRAM, requeued)) == joined(2)

    @pytest.mark.slow
    def test_a_home_that_others_may_write_to_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / ".unisono").mkdir()
        (tmp_path / ".unisono").chmod(0o770)
        program = "import unisono; unisono.init(bootstrap_timeout=5)"
        for _, text in run_all(program, self.environments(tmp_path, 2)):
            assert "MachineError" in text, text
            assert "chmod 700" in text, text

    @pytest.mark.slow
    def test_a_secret_of_the_users_goes_before_a_made_one(self, tmp_path: Path) -> None:
        environments = self.environments(tmp_path, 2, UNISONO_SECRET_FILE=write_secret(tmp_path))
        environments[1]["UNISONO_SECRET_FILE"] = ""
        program = "import unisono; unisono.init(bootstrap_timeout=3)"
        outputs = run_all(program, environments)
        assert all(code != 0 for code, _ in outputs)
        assert not list((tmp_path / ".unisono").glob("*.secret"))


# Enough of PyTorch for ranks on one host: a store in a folder, named by the place it listens at.
FAKE_TORCH = """
import fcntl, pathlib, time
class DistError(RuntimeError): pass
def is_available(): return True
class TCPStore:
    def __init__(self, host, port, world_size, is_master, timeout, wait_for_workers):
        assert not is_master and not wait_for_workers
        self.folder = pathlib.Path(__file__).parent / f"{host}-{port}"
        if not self.folder.is_dir(): raise DistError(f"nobody listens at {host}:{port}")
    def _path(self, key): return self.folder / key.replace("/", "-")
    def add(self, key, amount):
        with open(self._path(key), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            total = int(file.read() or 0) + amount
            file.truncate(0)
            file.write(str(total))
            return total
    def set(self, key, value):
        new = self._path(key + ".new")
        new.write_text(value)
        new.rename(self._path(key))
    def wait(self, keys, timeout):
        end = time.monotonic() + timeout.total_seconds()
        while not all(self._path(key).exists() for key in keys):
            if time.monotonic() > end: raise DistError("wait timeout")
            time.sleep(0.01)
    def get(self, key): return self._path(key).read_bytes()
"""


def own_address() -> str:
    """An address of this host that is not loopback, as torchrun names a host to several."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        return probe.getsockname()[0]


class TestTorchrun:
    """unisono.init() under torchrun on several hosts: through the store of torchrun's agent."""

    @staticmethod
    def environments(tmp_path: Path, size: int, **more: str) -> tuple[list[dict[str, str]], Path]:
        address = own_address()
        package = tmp_path / "torch" / "distributed"
        store = package / f"{address}-29400"
        store.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("")
        (package / "__init__.py").write_text(FAKE_TORCH)
        return [
            plain_environment(
                PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
                RANK=str(rank),
                WORLD_SIZE=str(size),
                MASTER_ADDR=address,
                MASTER_PORT="29400",
                TORCHELASTIC_USE_AGENT_STORE="True",
                **{"TORCHELASTIC_RESTART_COUNT": "0", **more},
            )
            for rank in range(size)
        ], store

    @pytest.mark.slow
    def test_ranks_meet_with_a_secret_from_the_agents_store(self, tmp_path: Path) -> None:
        environments, store = self.environments(tmp_path, 3)
        outputs = run_all(PROGRAM, environments)
        assert said(outputs) == joined(3)
        assert "no secret" not in "".join(text for _, text in outputs)
        told = [path.read_text() for path in store.glob("*rendezvous")]
        # Both jobs have started, so nobody needs their secrets any more.
        assert told == ["failed,the%20job%20has%20started%20without%20this%20rank"] * 2

    @pytest.mark.slow
    def test_workers_that_are_started_again_do_not_read_what_was_left(self, tmp_path: Path) -> None:
        environments, store = self.environments(tmp_path, 2)
        # Of the attempt before: rank 0 told where it listened and was killed, rank 1 never came.
        (store / "unisono-init-0-2-arrivals").write_text("1")
        (store / "unisono-init-0-2-0-rendezvous").write_text("tcp://127.0.0.1:1,s")
        again = [{**one, "TORCHELASTIC_RESTART_COUNT": "1"} for one in environments]
        assert said(run_all(PROGRAM, again)) == joined(2)

    def test_a_rank_0_that_does_not_come_is_named(self, tmp_path: Path) -> None:
        environments, _ = self.environments(tmp_path, 2)
        [(code, text)] = run_all(
            "import unisono; unisono.init(bootstrap_timeout=1)", environments[1:]
        )
        assert code != 0
        assert "CollectiveTimeoutError: rank 1 waited 1 s for rank 0" in text

    @pytest.mark.slow
    def test_a_store_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        environments, store = self.environments(tmp_path, 2)
        store.rmdir()
        for _, text in run_all("import unisono; unisono.init(bootstrap_timeout=1)", environments):
            assert "MachineError" in text, text
            assert "did not reach torchrun's store" in text, text

    @pytest.mark.slow
    def test_what_is_not_rank_0s_words_is_an_error(self, tmp_path: Path) -> None:
        environments, store = self.environments(tmp_path, 2)
        (store / "unisono-init-0-2-0-rendezvous").write_bytes(b"\xff[]")
        [(_, text)] = run_all("import unisono; unisono.init(bootstrap_timeout=1)", environments[1:])
        assert (
            "PeerError: peer error (rank 0): the rendezvous that rank 0 published through" in text
        )

    @pytest.mark.slow
    def test_a_rank_0_that_cannot_listen_ends_all_at_once(self, tmp_path: Path) -> None:
        environments, _ = self.environments(tmp_path, 2)
        environments[0]["UNISONO_INTERFACE"] = "192.0.2.1"
        outputs = run_all("import unisono; unisono.init(bootstrap_timeout=1000)", environments)
        assert "192.0.2.1" in outputs[0][1]
        assert "PeerError: peer error (rank 0): rank 0 could not listen" in outputs[1][1]

    @pytest.mark.slow
    def test_a_secret_of_the_users_needs_no_store(self, tmp_path: Path) -> None:
        environments, store = self.environments(tmp_path, 2)
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        one_turn = PROGRAM.replace("range(2)", "range(1)")
        for one in environments:
            one.update(UNISONO_SECRET_FILE=write_secret(tmp_path), MASTER_PORT=str(port - 1))
        assert len(said(run_all(one_turn, environments))) == 2
        assert list(store.iterdir()) == []
