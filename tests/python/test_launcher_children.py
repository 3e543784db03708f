"""What the ranks of a job have started ends with the job, in every way that it ends."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from python.jobs import LIMIT_SECONDS
from python.test_launcher import alive
from python.tiers import quick
from unisono import guardian

# Each rank starts these, which hold its output and ignore what asks them to end: one in its group,
# one in a group and one in a session of its own, and one in a session without an environment.
RANK = """
import os, signal, subprocess, sys, time
from pathlib import Path
CHILD = '''
import os, signal, sys, time
from pathlib import Path
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(1000)
'''
pids, rank = Path(sys.argv[1]), os.environ["UNISONO_RANK"]
os.write(1, b"begun\\n")
child = [sys.executable, "-c", CHILD, str(pids)]
subprocess.Popen(child)
subprocess.Popen(child, process_group=0)
subprocess.Popen(child, start_new_session=True)
if sys.argv[3] == "strangers":
    subprocess.Popen(child, start_new_session=True, env={})
while len(list(pids.iterdir())) < int(sys.argv[2]):
    time.sleep(0.01)
"""
ENDS = {
    "well": ("", 0),
    "exit": ("sys.exit(3 if rank == '1' else 0)", 3),
    "raise": ("raise ValueError('own')", 1),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL) if rank == '0' else time.sleep(1000)", 137),
    "hang": ("time.sleep(1000) if rank == '0' else sys.exit(4)", 4),
    "told": ("os.kill(LAUNCHER, signal.SIGTERM) if rank == '0' else 0; time.sleep(1000)", 143),
}


def run_launcher(folder, end, head="", options="", strangers=True):
    """A launcher whose ranks start children: what it wrote, and the pids of the children."""
    pids = folder / "pids"
    pids.mkdir()
    script = folder / "ranks.py"
    script.write_text(RANK + end.replace("LAUNCHER", "os.getppid()"))
    kinds = 4 if strangers else 3
    words = [str(script), str(pids), str(2 * kinds), "strangers" if strangers else ""]
    launcher = f"""
        {head}
        from unisono import processes
        from unisono.launcher import launch
        processes._LEAVE_SECONDS = processes._TERMINATE_SECONDS = 0.2
        outcome = launch({words!r}, 2, prefix_output=False{options})
        print("left", outcome.left_running)
        raise SystemExit(outcome.exit_code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(launcher)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done, [int(path.name) for path in pids.iterdir()]


@pytest.mark.parametrize("fold", quick([False, True], kept=[True]))
@pytest.mark.parametrize("way", quick(ENDS, kept={"kill", "well"}))
def test_nothing_outlives_the_job(tmp_path, way, fold):
    """The output ends, too: children that hold it would keep `run` from its end."""
    end, code = ENDS[way]
    done, children = run_launcher(tmp_path, end, options=f", fold_errors={fold}")
    assert done.returncode == code, done
    assert len(children) == 8
    assert not [pid for pid in children if alive(pid)]
    assert done.stdout.splitlines().count("begun") == 2
    # Some were in the groups of ranks that were made to end.
    left = int(done.stdout.split()[-1])
    assert left >= (8 if way in ("well", "exit", "raise") else 6), done
    assert ("ValueError: own" in done.stderr) == (way == "raise")


def test_a_program_with_other_children_keeps_them(tmp_path):
    """They are not taken for the ranks'; those of ranks with the job's environment end."""
    head = "import subprocess; other = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    done, children = run_launcher(
        tmp_path, "", head, ")\n        print('other', other.poll(), other.kill()", strangers=False
    )
    assert "other None None" in done.stdout, done
    assert len(children) == 6
    assert not [pid for pid in children if alive(pid)]


def test_helpers_that_end_with_their_rank_are_not_counted(tmp_path):
    """As multiprocessing's, which see the end of their input."""
    script = tmp_path / "ranks.py"
    script.write_text(
        "import subprocess\n"
        "subprocess.Popen(['sh', '-c', 'read x; sleep 0.2'], stdin=subprocess.PIPE)\n"
    )
    launcher = f"""
        from unisono import processes
        from unisono.launcher import launch
        processes._LEAVE_SECONDS = {LIMIT_SECONDS}
        print(launch([{str(script)!r}], 2).left_running)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(launcher)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.stdout == "0\n", done


def test_what_cannot_be_ended_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(guardian, "_KILL_SECONDS", 0.1)
    killed = []
    monkeypatch.setattr(guardian.os, "kill", lambda pid, number: killed.append((pid, number)))
    assert guardian.end(lambda: [7], leave=0.0, ask=0.05) == 1
    assert killed[0] == (7, guardian.signal.SIGTERM)
    assert (7, guardian.signal.SIGKILL) in killed
    assert killed.count((7, guardian.signal.SIGTERM)) == 1


def test_what_is_left_is_found_by_session_environment_and_descent(tmp_path):
    ready = tmp_path / "ready"
    ready.mkdir()
    script = f"import os, time; open(f'{ready}/{{os.getpid()}}', 'w'); time.sleep(1000)"
    command = [sys.executable, "-c", script]
    started = [
        subprocess.Popen(command, start_new_session=True),
        subprocess.Popen(command, env={"UNISONO_RENDEZVOUS": f"{tmp_path.as_uri()}/rendezvous"}),
        subprocess.Popen(["sh", "-c", '"$@"; true', "x", *command], start_new_session=True, env={}),
    ]
    try:
        while len(list(ready.iterdir())) < 3:
            assert all(one.poll() is None for one in started)
        pids = [one.pid for one in started]
        mark = guardian.mark_of(tmp_path.as_uri())
        assert guardian.left_by({pids[0]}, mark) == sorted(pids[:2])
        below = [int(path.name) for path in ready.iterdir() if int(path.name) not in pids]
        assert guardian.left_by(set(), b"no such mark\0", pids[2]) == below
        assert guardian.left_by(set(), b"no such mark\0", pids[2], below) == []
    finally:
        for pid in [int(path.name) for path in ready.iterdir()]:
            os.kill(pid, signal.SIGKILL)
        for one in started:
            one.kill()
            one.wait()
