"""The rank that failed first is named, by the job's outcome and by the last line of its output."""

import subprocess
import sys
import textwrap
from functools import partial

import pytest
import unisono
from python.jobs import LIMIT_SECONDS, NEVER, patient, run_job
from python.tiers import quick
from unisono import processes
from unisono.endings import Cause, Ending, blamed_by, find_cause
from unisono.relay import describe_ranks


@pytest.fixture
def job(tmp_path, capfdbinary):
    return partial(run_job, tmp_path, capfdbinary)


# The end, the exit code, and what the last line says of it.
WAYS = {
    "raise": ("raise ValueError('my own')", 1, "exited with code 1"),
    "exit": ("sys.exit(3)", 3, "exited with code 3"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
    "_exit": ("os._exit(5)", 5, "exited with code 5"),
}
FAILS = f"""
    comm = unisono.init(timeout={NEVER})
    comm.all_reduce(np.ones(10))
    if comm.rank == {{at}}:
        {{end}}
    while True:
        comm.all_reduce(np.ones(10))
"""


@pytest.mark.parametrize("at", quick([0, 2, 3], kept={2}))
@pytest.mark.parametrize("way", quick(WAYS, kept={"raise", "kill"}))
def test_the_rank_that_failed_first_is_named(job, monkeypatch, way, at):
    patient(monkeypatch)
    end, code, how = WAYS[way]
    outcome, output = job(FAILS.format(at=at, end=end), 4)
    assert (outcome.exit_code, outcome.failed_rank) == (code, at), output
    assert outcome.message == f"rank {at} {how}"


def test_a_rank_that_ends_after_all_that_suffered_from_it_is_named(job, monkeypatch, tmp_path):
    """It ends only when the launcher has seen the others' end, and 10 more looks are over."""
    patient(monkeypatch)
    outcome, output = job(
        f"""
        comm = unisono.init(timeout={NEVER})
        comm.all_reduce(np.ones(10))
        def zombie(pid):
            return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] == "Z"
        pids = [int(one[0]) for one in comm.all_gather(np.array([[os.getpid()]]))]
        if comm.rank == 1:
            comm.abort()
            while not all(zombie(pid) for pid in pids if pid != os.getpid()):
                time.sleep(0.01)
            time.sleep(0.2)
            sys.exit(7)
        comm.all_reduce(np.ones(10))
        """,
        3,
    )
    assert outcome == unisono.launcher.Outcome(7, 1, "rank 1 exited with code 7"), output


def test_a_program_over_nccl_is_not_named_for_what_another_rank_did(
    tmp_path, capfdbinary, monkeypatch
):
    """Rank 1 gives up, and ends 10 looks after the launcher has seen the others' end."""
    patient(monkeypatch)
    script = tmp_path / "rank.py"
    script.write_text(
        textwrap.dedent("""
            import ctypes, os, pathlib, sys, time
            nccl = ctypes.CDLL("libnccl.so.2")
            nccl.ncclGetLastError.restype = ctypes.c_char_p
            class Id(ctypes.Structure):
                _fields_ = [("bytes", ctypes.c_char * 128)]
            def check(result):
                if result != 0:
                    sys.exit(nccl.ncclGetLastError(None).decode())
            rank, folder = int(os.environ["RANK"]), pathlib.Path(sys.argv[1])
            os.environ["NCCL_COMM_ID"] = "127.0.0.1:" + os.environ["MASTER_PORT"]
            unique, comm = Id(), ctypes.c_void_p()
            check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
            (folder / f"pid{rank}").write_text(str(os.getpid()))
            check(nccl.ncclCommInitRank(ctypes.byref(comm), 3, unique, rank))
            value = (ctypes.c_float * 10)()
            def sum_up():
                check(nccl.ncclAllReduce(value, value, ctypes.c_size_t(10), 7, 0, comm, None))
            sum_up()
            def zombie(pid):
                return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
            others = [(folder / f"pid{other}").read_text() for other in (0, 2)]
            if rank == 1:
                nccl.ncclCommAbort(comm)
                while not all(zombie(pid) for pid in others):
                    time.sleep(0.01)
                time.sleep(0.2)
                sys.exit(7)
            sum_up()
        """)
    )
    outcome = unisono.launcher.launch(
        [str(script), str(tmp_path)],
        3,
        preload_nccl=True,
        timeout=LIMIT_SECONDS,
        environment={"UNISONO_NCCL_HOST_MEMORY": "1", "UNISONO_LOG": "off"},
    )
    output = capfdbinary.readouterr().out.decode()
    assert outcome == unisono.launcher.Outcome(7, 1, "rank 1 exited with code 7"), output


@pytest.mark.slow
def test_an_own_error_after_one_of_a_peer_counts_as_own(job, monkeypatch):
    """Rank 1 recovers from the loss of rank 2, which ends well, and then fails by itself."""
    patient(monkeypatch)
    outcome, output = job(
        f"""
        comm = unisono.init(timeout={NEVER})
        if comm.rank == 2:
            sys.exit()
        try:
            comm.all_reduce(np.ones(10))
        except unisono.PeerError as error:
            comm = comm.shrink([error.rank])
        if comm.rank == 1:
            raise ValueError("my own")
        comm.all_reduce(np.ones(10))
        """,
        3,
    )
    assert outcome == unisono.launcher.Outcome(1, 1, "rank 1 exited with code 1"), output


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_by_the_others_errors(job, monkeypatch):
    monkeypatch.setattr(processes, "_CAUSE_SECONDS", 0.0)
    outcome, output = job(
        """
        comm = unisono.init(timeout=2)
        if comm.rank == 1:
            time.sleep(1000)
        comm.all_reduce(np.ones(10))
        """,
        3,
    )
    assert (outcome.exit_code, outcome.failed_rank) == (1, 1), output
    assert outcome.message in {
        f"rank 1 failed first: it still ran when rank {rank} exited with code 1 because of it"
        for rank in (0, 2)
    }


@pytest.mark.slow
def test_a_rank_of_a_part_is_named_by_its_number_in_the_job(job, monkeypatch):
    """Rank 3 is number 1 of its part."""
    monkeypatch.setattr(processes, "_CAUSE_SECONDS", 0.0)
    outcome, output = job(
        """
        comm = unisono.init()
        part = comm.split(comm.rank // 2)
        if comm.rank != 2:
            time.sleep(1000)
        part.all_reduce(np.ones(10), timeout=2)
        """,
        4,
    )
    assert (outcome.exit_code, outcome.failed_rank) == (1, 3), output


def run_cli(folder, lines, *options):
    script = folder / "ranks.py"
    head = "import os, signal, sys, time, numpy as np, unisono\n"
    script.write_text(head + textwrap.dedent(lines))
    command = f"""
        import sys
        from unisono import processes, relay
        from unisono.cli import main
        processes._LAST_WORDS_SECONDS = relay._HOLD_SECONDS = {LIMIT_SECONDS}
        sys.argv = ["unisono", "run", "-n", "4", *{options!r}, {str(script)!r}]
        main()
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(command)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


SPEAKS = FAILS.replace("while True", "os.write(1, b'out\\n')\n    while True")


@pytest.mark.parametrize("label", quick([(), ("--label",)], kept=[()]))
def test_only_the_first_error_is_shown_and_the_last_line_names_its_rank(tmp_path, label):
    done = run_cli(tmp_path, SPEAKS.format(at=2, end=WAYS["raise"][0]), *label)
    assert done.returncode == 1
    errors = done.stderr.splitlines()
    assert errors[-1] == "error: rank 2 exited with code 1"
    assert errors[-2].startswith("note: ")
    assert errors[-2].endswith(" lines of ranks 0-1, 3 are not shown; run with -v for all")
    text = done.stdout + done.stderr
    assert text.count("Traceback") == text.count("ValueError: my own") == 1
    assert "PeerError" not in text
    prefixes = (0, 1, 3) if label else ("",) * 3
    expected = [f"[{one}] out" if label else "out" for one in prefixes]
    assert sorted(line for line in done.stdout.splitlines() if line.endswith("out")) == expected


@pytest.mark.slow
def test_verbose_shows_every_error(tmp_path):
    done = run_cli(tmp_path, SPEAKS.format(at=2, end=WAYS["raise"][0]), "-v")
    assert done.stderr.splitlines()[-1] == "error: rank 2 exited with code 1"
    assert done.stderr.count("Traceback") == 4
    assert "note:" not in done.stderr


@pytest.mark.slow
def test_nothing_is_lost_of_a_job_that_goes_well(tmp_path):
    """Errors that are only told are passed on, and so is a last line without an end."""
    done = run_cli(
        tmp_path,
        """
        import traceback
        try:
            raise ValueError("told")
        except ValueError:
            traceback.print_exc()
        for line in range(1000):
            print("line", line, file=sys.stderr)
        sys.stderr.write("no end ")
        """,
    )
    assert done.returncode == 0
    assert done.stderr.count("ValueError: told") == 4
    assert done.stderr.count("line 999") == done.stderr.count("no end ") == 4
    assert done.stderr.count("\n") == 4 * (4 + 1000) + done.stderr.count("^^^")


def test_the_cause_of_endings_and_notes():
    def found(failed, notes=None, unended=()):
        endings = {rank: Ending(code, look) for rank, (code, look) in failed.items()}
        return find_cause(endings, {k: (v,) for k, v in (notes or {}).items()}, unended)

    # The earliest of those that fail by themselves; in one look, the one that was killed.
    assert found({0: (1, 5), 2: (3, 4)}) == Cause(2, 2)
    assert found({0: (1, 5), 2: (-9, 5)}) == Cause(2, 2)
    # Later than all that suffer from it, and than one that nobody names.
    assert found({0: (1, 1), 3: (1, 9)}, {0: 3}) == Cause(3, 3)
    assert found({0: (1, 1), 1: (1, 2), 3: (1, 9)}, {0: 3}) == Cause(3, 3)
    # All suffer: the one that most name, even one that has not ended, but not one that ended well.
    assert found({0: (1, 1), 1: (1, 2), 2: (1, 3)}, {0: 2, 1: 2, 2: 0}) == Cause(2, 2)
    assert found({0: (1, 1), 1: (1, 2)}, {0: 3, 1: 3}, {3}) == Cause(3, 0)
    assert found({1: (1, 2), 0: (1, 1)}, {0: 3, 1: 3}) == Cause(0, 0)
    # They name each other, or nobody.
    assert found({0: (1, 2), 1: (1, 1)}, {0: 1, 1: 0}) == Cause(1, 1)
    assert found({0: (1, 2), 1: (1, 1)}, {0: None, 1: None}) == Cause(1, 1)


def test_a_note_may_be_missing_or_broken(tmp_path):
    for rank, text in enumerate(["3", "", "x"]):
        (tmp_path / f"blames-{rank}").write_text(text)
    assert [blamed_by(str(tmp_path), rank) for rank in range(4)] == [(3,), (None,), None, None]


def test_ranks_are_described_as_spans():
    assert describe_ranks([5]) == "rank 5"
    assert describe_ranks([7, 0, 2, 3, 4]) == "ranks 0, 2-4, 7"
