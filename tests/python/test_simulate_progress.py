"""How far simulations are, how long the rest takes, and that they stop when told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from unisono import _unisono as native
from unisono.cli.watch import describe, duration, estimate
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import (
    Device,
    Job,
    Layout,
    LogGops,
    Progress,
    load_cluster,
    run_goal,
    simulate,
    simulate_all,
    simulate_workload,
    training_step,
)


@pytest.mark.parametrize("collapse", [True, False])
@pytest.mark.parametrize("size", [4, 1_000_004, 64 << 20])
def test_every_step_of_a_collective_is_counted(collapse: bool, size: int) -> None:
    progress = native.SimulationProgress()
    simulate(
        load_cluster("dgx_h100"), "all_reduce", "ring", size_bytes=size, ranks=16, calls=3,
        collapse=collapse, progress=progress,
    )  # fmt: skip
    assert progress.done == progress.total > 0


@pytest.mark.parametrize("collapse", [True, False])
def test_every_step_of_a_workload_is_counted(collapse: bool) -> None:
    layout = Layout(tensor=2, pipeline=2, replicate=2)
    step = training_step("gpt-125m", layout, Device(tflops=400), global_batch_tokens=16384)
    step.iterations = 2
    progress = native.SimulationProgress()
    simulate_workload(load_cluster("dgx_h100"), step, collapse=collapse, progress=progress)
    assert progress.done == progress.total > 0


def test_every_operation_of_goal_is_counted() -> None:
    text = b"num_ranks 1\nrank 0 {\na: calc 5\nb: calc 7\nb requires a\n}\n"
    progress = native.SimulationProgress()
    run_goal(native.GoalSchedule.read(text), LogGops(), progress=progress)
    assert (progress.done, progress.total) == (2, 2)


def test_a_sweep_is_done_when_all_its_steps_are() -> None:
    jobs = [
        Job(algorithm, "simple", 16, size)
        for algorithm in ("ring", "tree", "no_such")
        for size in (1024, 4 << 20)
    ]
    progress = Progress()
    results, refused = simulate_all(
        load_cluster("dgx_h100"), "all_reduce", jobs, {}, progress=progress
    )
    assert len(results) == 4
    assert all("no_such" in why for _, why in refused)
    assert progress.done == progress.total > 0


def test_what_has_not_begun_is_expected_to_be_like_what_has() -> None:
    progress = Progress()
    first, second, third = progress.part(1.0), progress.part(3.0), progress.part(5.0)
    assert progress.total == 0
    cluster = load_cluster("dgx_h100")
    with first:
        simulate(cluster, "all_reduce", "ring", size_bytes=1024, ranks=8, progress=first.native)
    assert progress.total == 9 * first.native.total
    with third:
        pass
    assert progress.total == 4 * first.native.total
    assert not second.has_ended


def test_a_simulation_stops_when_told() -> None:
    progress = Progress()
    part = progress.part()

    def stop() -> None:
        while not progress.done:
            time.sleep(0.01)
        progress.stop()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(MisuseError, match="stopped"):
        # Some minutes.
        simulate(
            load_cluster("dgx_h100"), "all_reduce", "ring", size_bytes=256 << 20, ranks=512,
            calls=1000, collapse=False, progress=part.native,
        )  # fmt: skip
    assert 0 < progress.done < progress.total


@pytest.mark.slow
def test_ctrl_c_ends_a_simulation_in_a_program() -> None:
    program = (
        "from unisono.simulate import load_cluster, simulate\n"
        "cluster = load_cluster('dgx_h100')\n"
        "try:\n"
        "    print('begins', flush=True)\n"
        "    simulate(cluster, 'all_reduce', 'ring', size_bytes=256 << 20, ranks=512, calls=1000,\n"
        "             collapse=False)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.5)  # Most of the time it computes in native code.
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert output == "interrupted\n"
    finally:
        process.kill()
        process.wait()


def test_a_log_says_how_long_it_will_take() -> None:
    assert estimate(0, 100, 5) is None
    assert estimate(5, 0, 5) is None
    assert estimate(25, 100, 5) == 15
    assert describe(2_000_000, 402_000_000, 3) == (
        "simulated 2.0 of 402.0 million steps, 0.67 million a second; about 10 min left"
    )
    assert [duration(seconds) for seconds in (4, 99, 100, 3540, 3900)] == [
        "4 s", "99 s", "2 min", "59 min", "1 h 5 min",
    ]  # fmt: skip
