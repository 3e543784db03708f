"""Jobs of real processes: results, output, exit codes, a killed rank, a killed launcher."""

import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import unisono
from python.jobs import LIMIT_SECONDS, NEVER, patient, run_job
from unisono import processes
from unisono.job_folder import job_folder, sweep
from unisono.launcher import launch


@pytest.fixture
def job(tmp_path, capfdbinary):
    return partial(run_job, tmp_path, capfdbinary)


COLLECTIVES = """
    comm = unisono.init()
    rank, size = comm.rank, comm.size
    x = np.arange(size * 1000, dtype=np.float32) + rank
    total = np.arange(size * 1000) * size + size * (size - 1) / 2
    mine = slice(1000 * rank, 1000 * rank + 1000)
    for algorithm in unisono._unisono.algorithms("all_reduce"):
        np.testing.assert_array_equal(comm.all_reduce(x, algorithm=algorithm.name), total)
    np.testing.assert_array_equal(comm.reduce_scatter(x), total[mine])
    np.testing.assert_array_equal(comm.all_gather(total[mine].copy()), total)
    large = np.full(1_000_003, rank + 1, np.float64)
    np.testing.assert_array_equal(comm.broadcast(large, 1)[::1000], np.full(1001, 2.0))
    np.testing.assert_array_equal(comm.all_to_all(x), np.concatenate(
        [np.arange(mine.start, mine.stop, dtype=np.float32) + other for other in range(size)]))
    part = comm.split(rank % 2)
    assert part.all_gather(np.array([rank])).tolist() == list(range(rank % 2, size, 2))
    y = np.zeros(5)
    with comm.group() as group:
        group.send(np.full(5, rank), (rank + 1) % size)
        group.recv(np.frombuffer(y, np.int64), (rank - 1) % size)
    assert y.view(np.int64).tolist() == [(rank - 1) % size] * 5
    transports = sorted({one["transport"] for one in comm.memory()["connections"]})
    print(comm.nodes, comm.node, *transports)
"""


@pytest.mark.parametrize(("ranks", "nodes"), [(3, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_collectives_of_processes(job, ranks, nodes):
    outcome, output = job(COLLECTIVES, ranks, nodes=nodes)
    assert outcome.ok, (outcome, output)
    transports = "shm" if nodes == 1 else "shm socket"
    node_of = unisono._unisono.Placement(ranks, nodes).node_of
    assert output == [f"[{rank}] {nodes} {node_of(rank)} {transports}" for rank in range(ranks)]


@pytest.mark.slow
def test_what_ranks_are_told(job):
    outcome, output = job(
        """
        keys = ("RANK", "WORLD_SIZE", "NODE")
        print(*(os.environ["UNISONO_" + key] for key in keys), os.environ["OWN"])
        secret = os.environ["UNISONO_SECRET_FILE"]
        print(os.path.getsize(secret), oct(os.stat(secret).st_mode & 0o777), sys.stdin.read() == "")
        """,
        3,
        nodes=2,
        environment={"OWN": "x"},
    )
    assert outcome == unisono.launcher.Outcome(0, None, "")
    first = ["[0] 0 3 node0 x", "[1] 1 3 node0 x", "[2] 2 3 node1 x"]
    assert output == sorted(first + [f"[{rank}] 64 0o600 True" for rank in range(3)])


@pytest.mark.slow
def test_ranks_get_the_users_own_secret(job, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    secret.chmod(0o600)
    outcome, output = job(
        """
        unisono.init().barrier()
        print(os.environ["UNISONO_SECRET_FILE"])
        """,
        2,
        environment={"UNISONO_SECRET_FILE": str(secret)},
    )
    assert outcome.ok, (outcome, output)
    assert output == [f"[{rank}] {secret}" for rank in range(2)]


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others_and_is_named(job):
    # Ranks that were not ended would let the time limit of the test expire.
    outcome, _ = job("sys.exit(7) if os.environ['UNISONO_RANK'] == '1' else time.sleep(1000)", 3)
    assert outcome == unisono.launcher.Outcome(7, 1, "rank 1 exited with code 7")
    assert not outcome.ok


@pytest.mark.slow
def test_ranks_that_ignore_the_request_to_end_are_killed(job):
    outcome, _ = job(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(7) if os.environ["UNISONO_RANK"] == "1" else time.sleep(1000)
        """,
        2,
    )
    assert outcome.failed_rank == 1


def test_a_killed_rank_is_named_by_all_others_and_none_hangs(job, monkeypatch):
    patient(monkeypatch)
    outcome, output = job(
        f"""
        comm = unisono.init(timeout={NEVER})
        comm.all_reduce(np.ones(10))
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(10), algorithm="ring")
        except unisono.PeerError as error:
            print(type(error).__name__, error.rank)
        """,
        3,
    )
    assert outcome == unisono.launcher.Outcome(137, 1, "rank 1 was killed by SIGKILL")
    assert output == ["[0] PeerError 1", "[2] PeerError 1"]


@pytest.mark.slow
def test_a_killed_rank_across_nodes(job, monkeypatch):
    patient(monkeypatch)
    outcome, output = job(
        f"""
        comm = unisono.init(timeout={NEVER})
        comm.all_reduce(np.ones(10), algorithm="ring")
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(10), algorithm="ring")
        except unisono.PeerError as error:
            print(type(error).__name__, error.rank)
        """,
        2,
        nodes=2,
    )
    assert outcome.failed_rank == 1
    assert output == ["[0] PeerError 1"]


def test_stop_ends_the_ranks(job):
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    outcome, _ = job("time.sleep(1000)", 2, stop=stop)
    assert outcome.message == "the ranks were told to stop"


def test_the_time_can_be_limited(tmp_path):
    outcome = launch(["-c", "import time; time.sleep(1000)"], 2, timeout=0.3)
    assert (outcome.exit_code, outcome.message) == (124, "the ranks were ended: 0.3 s are over")


def test_impossible_shapes_are_refused():
    with pytest.raises(unisono.MisuseError, match="nodes is 3; with 2 ranks it must be 1 to 2"):
        launch(["true"], 2, nodes=3)
    with pytest.raises(unisono.MisuseError, match="ranks is 0"):
        launch(["true"], 0)


@pytest.mark.parametrize("word", ["/no/such/command", "nul\0byte", "/"])
def test_a_command_that_cannot_be_starts_nothing(word):
    with pytest.raises(unisono.MachineError, match="cannot start .* for rank 0") as caught:
        launch([word], 2)
    assert isinstance(caught.value, OSError)


def test_no_command_is_refused():
    with pytest.raises(unisono.MisuseError, match="no command"):
        launch([], 2)


KILLED = """
    import os, sys
    from unisono.launcher import launch
    print(os.getpid(), flush=True)
    launch({command!r}, 2, prefix_output={prefix}, environment={{"JOB_TEST": {mark!r}}})
"""
# What ranks are, and what they leave behind: alone, under a shell, with a child of a process group
# and with one of a session of its own.
STAYS = """
import os, sys, time
from pathlib import Path
def stay():
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(1000)
"""
LEADS = """
for lead in (lambda: os.setpgid(0, 0), os.setsid):
    if os.fork() == 0:
        lead()
        stay()
"""
SHELL = "touch $1/$$; sh -c 'touch $1/$$; sleep 1000; true' x $1; true"
KINDS = {
    "ranks": ["-c", STAYS + "stay()"],
    "under a shell": ["sh", "-c", SHELL, "x"],
    "group of its own": ["-c", STAYS + LEADS + "stay()"],
}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def awaited(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize(("kind", "processes"), [("ranks", 2), ("under a shell", 4),
                                                 ("group of its own", 6)])  # fmt: skip
def test_ranks_end_with_a_launcher_that_is_killed(tmp_path, monkeypatch, kind, processes, prefix):
    pids, place = tmp_path / "pids", tmp_path / "place"
    pids.mkdir()
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    script = KILLED.format(command=[*KINDS[kind], str(pids)], prefix=prefix, mark=str(tmp_path))
    killed = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    assert awaited(lambda: len(list(pids.iterdir())) == processes)
    killed.kill()
    killed.wait()
    started = [int(path.name) for path in pids.iterdir()]
    assert awaited(lambda: not any(map(alive, started))), kind
    # The guardian takes the folder, too.
    assert awaited(lambda: not list(place.iterdir()))


def test_the_next_run_sweeps_the_folders_of_the_dead_and_of_them_alone(tmp_path, monkeypatch):
    """The guardian is killed with the launcher: as when a container's memory runs out."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = f"""
        import os, signal, tempfile, time
        tempfile.tempdir = {str(tmp_path)!r}
        from unisono.job_folder import job_folder
        with job_folder() as folder:
            (folder / "rendezvous").touch()
            print(folder, flush=True)
            time.sleep(1000)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    makers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = [Path(maker.stdout.readline().strip()) for maker in makers]
    (tmp_path / "unisono-job-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    try:
        makers[0].kill()
        makers[0].wait()
        with job_folder() as own:
            assert own.is_dir()
            assert not folders[0].exists()
            assert (folders[1] / "rendezvous").exists()
            assert sweep() == []
            assert own.stat().st_mode & 0o777 == 0o700
        assert not own.exists()
        assert (tmp_path / "elsewhere").is_dir()
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = []

    def make_and_lose(**arguments: str) -> str:
        made.append(make(**arguments))
        if len(made) == 1:
            assert sweep() == [Path(made[0])]
        return made[-1]

    make = tempfile.mkdtemp
    monkeypatch.setattr("tempfile.mkdtemp", make_and_lose)
    with job_folder() as own:
        assert own == Path(made[1])
        assert own.is_dir()


def test_a_job_goes_on_without_its_guardian(job, monkeypatch):
    started = processes.start_guardian

    def killed(folder):
        process = started(folder)
        process.kill()
        process.wait()
        return process

    monkeypatch.setattr(processes, "start_guardian", killed)
    outcome, output = job("print('ran')", 2)
    assert outcome.ok
    assert output == ["[0] ran", "[1] ran"]


@pytest.mark.slow
def test_a_program_may_end_without_waiting(job):
    """Neither a call that runs nor a communicator that lives on keeps a process from its end."""
    outcome, output = job(
        """
        comm = unisono.init()
        other = comm.split(0)
        comm.all_reduce(np.ones(100_000))
        comm.barrier()
        if comm.rank == 0:
            comm.all_reduce(np.ones(100_000), async_op=True)
        print("end")
        """,
        2,
    )
    assert outcome.ok, (outcome, output)
    assert output == ["[0] end", "[1] end"]
