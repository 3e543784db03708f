"""Jobs that go on when a rank fails."""

from functools import partial

import pytest
import unisono
from python.jobs import NEVER, run_job
from unisono import processes


@pytest.fixture
def job(tmp_path, capfdbinary):
    return partial(run_job, tmp_path, capfdbinary)


def test_the_others_go_on_if_they_are_to(job):
    outcome, output = job(
        f"""
        comm = unisono.init(timeout={NEVER})
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(10))
        except unisono.PeerError as error:
            rest = comm.shrink([error.rank])
        time.sleep(1.5)  # longer than the launcher gives ranks for their last words
        print(rest.all_reduce(np.array([comm.rank]))[0])
        """,
        3,
        keep_going=True,
    )
    assert outcome == unisono.launcher.Outcome(0, 1, "rank 1 was killed by SIGKILL")
    assert output == ["[0] 2", "[2] 2"]


@pytest.mark.slow
def test_survivors_go_on_in_the_next_epoch_whatever_a_rank_says_that_wakes_up_in_the_old(
    job, tmp_path
):
    shrunk, told = tmp_path / "shrunk", tmp_path / "told"
    wake = f"while [ ! -e {shrunk} ]; do sleep 0.1; done; kill -CONT"
    outcome, output = job(
        f"""
        import pathlib, subprocess
        comm = unisono.init(timeout={NEVER})
        comm.all_reduce(np.ones(10))
        late = comm.rank == 1
        if late:
            subprocess.Popen(["sh", "-c", f"{wake} {{os.getpid()}}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            while True:
                comm.all_reduce(np.ones(10), timeout=2)
        except unisono.PeerError as error:
            culprit = error.rank
        if late:
            print("late", culprit)
            pathlib.Path("{told}").touch()
            sys.exit()
        comm = comm.shrink([culprit])
        epoch = comm.record()["epoch"]
        pathlib.Path("{shrunk}").touch()
        while True:  # until all have seen that the late one has come
            assert comm.all_reduce(np.array([comm.rank]))[0] == 1
            if comm.all_reduce(np.array([float(os.path.exists("{told}"))]), "min")[0]:
                break
        print("epoch", epoch, comm.world_ranks)
        """,
        3,
        keep_going=True,
    )
    assert outcome.ok, (outcome, output)
    assert output == ["[0] epoch 1 [0, 2]", "[1] late 1", "[2] epoch 1 [0, 2]"]


def one_after_the_other(tmp_path, first):
    """Two ranks that fail: `first` with code 3, and once it has ended, the other with code 4."""
    pid = tmp_path / "pid"
    return f"""
        if os.environ["UNISONO_RANK"] == "{first}":
            with open("{pid}.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename("{pid}.new", "{pid}")
            sys.exit(3)
        def has_ended(pid):
            return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] == "Z"
        while not (os.path.exists("{pid}") and has_ended(open("{pid}").read())):
            time.sleep(0.01)
        sys.exit(4)
        """


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_a_job_whose_ranks_all_fail_has_failed_however_it_goes_on(job, tmp_path, first):
    outcome, _ = job(one_after_the_other(tmp_path, first), 2, keep_going=True)
    assert outcome == unisono.launcher.Outcome(3, first, f"rank {first} exited with code 3")


def test_a_rank_that_ends_behind_a_look_does_not_count_as_later(job, tmp_path, monkeypatch):
    """A look goes past rank 0, which ends, and then rank 1 does, before the look is there."""
    polled, ended, exit_code = [], [], processes._exit_code

    def passes_rank_0_until_rank_1_has_ended(process):
        polled.append(process)
        if process is polled[0] and not ended:
            return None
        code = exit_code(process)
        if code is not None:
            ended.append(process)
        return code

    monkeypatch.setattr(processes, "_exit_code", passes_rank_0_until_rank_1_has_ended)
    outcome, _ = job(one_after_the_other(tmp_path, 0), 2)
    assert outcome == unisono.launcher.Outcome(3, 0, "rank 0 exited with code 3")
