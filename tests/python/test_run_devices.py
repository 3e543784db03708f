"""Plans run on CUDA devices, where there are any."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
from python.lang_programs import reads, ring
from typer.testing import CliRunner
from unisono import _unisono as native
from unisono import lang
from unisono.cli.app import app
from unisono.devices import run_all_on_devices, run_on_devices
from unisono.errors import Error, MisuseError
from unisono.lang import program
from unisono.launcher import launch

LIBRARY = Path(__file__).parents[2] / "examples" / "language"


def devices():
    """How many there are."""
    try:
        return native.cuda_device_count()
    except Error:
        return 0


@program("custom", wanted=lambda shape, rank, index: [((rank - 1) % shape.ranks, index)])
def shift(p):
    for rank in range(p.ranks):
        p.chunk(rank, "input", 0).copy((rank + 1) % p.ranks, "output", 0)


@pytest.mark.skipif(devices() == 0, reason="there is no CUDA device")
@pytest.mark.parametrize("count", [0, 1, 1000, 1_000_003])
@pytest.mark.parametrize("in_place", [False, True])
def test_programs_run_on_devices(count, in_place):
    inputs = [np.arange(count, dtype=np.int32) * (rank + 1) for rank in range(2)]
    for protocol in ("simple", "ll", "ll128"):
        plan = ring.compile(2, in_place=in_place, protocol=protocol).plan
        for output in run_on_devices(plan, inputs):
            np.testing.assert_array_equal(output, sum(inputs))
    if not in_place:
        outputs = run_on_devices(shift.compile(2).plan, inputs)
        np.testing.assert_array_equal(outputs[0], inputs[1])
        np.testing.assert_array_equal(outputs[1], inputs[0])


@pytest.mark.skipif(devices() == 0, reason="there is no CUDA device")
def test_one_sided_programs_are_refused_by_their_step():
    with pytest.raises(MisuseError, match="reads cannot run in the memory of this call: rank"):
        run_on_devices(reads.compile(2).plan, [np.zeros(4)] * 2)


@pytest.mark.skipif(devices() > 0, reason="there is a CUDA device")
def test_without_a_device_it_says_so():
    with pytest.raises(Error, match="CUDA"):
        run_on_devices(ring.compile(2).plan, [np.zeros(4)] * 2)


def test_in_place_plans_of_one_root_are_refused():
    @program("broadcast", in_place=True)
    def star(p):
        p.chunk(p.root, "input", 0).copy(1 - p.root)

    with pytest.raises(MisuseError, match="is so at the root alone"):
        run_on_devices(star.compile(2, in_place=True).plan, [np.zeros(4)] * 2)
    assert lang.run(star.compile(2, in_place=True).plan, [np.ones(4)] * 2)[1].all()


def test_runs_of_one_job_have_equally_many_ranks():
    runs = [(ring.compile(ranks).plan, [np.zeros(4)] * ranks) for ranks in (2, 3)]
    with pytest.raises(MisuseError, match=r"plans of \[2, 3\] ranks"):
        run_all_on_devices(runs)


# Programs with a call of their own and without, on tensors of processes of their own.
PROCESSES = """
    import sys
    from pathlib import Path

    import torch
    import unisono
    from unisono import lang

    (to_next,), (ring,) = (lang.load(Path(one)) for one in sys.argv[1:3])
    comm = unisono.init()
    device = torch.device("cuda", comm.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    comm.register(to_next)
    comm.register(ring, (0, 1 << 16))
    for count in (4, 1000, 100_000):
        x = torch.arange(comm.size * count, device=device, dtype=torch.float32) + comm.rank
        total = comm.size * (x - comm.rank) + sum(range(comm.size))
        assert torch.equal(torch.as_tensor(comm.all_reduce(x)), total)
        taken = comm.record()["collectives"][-1]["plan"]
        assert (taken == ring.name) == (x.nbytes <= 1 << 16), (count, taken)
        got = torch.as_tensor(comm.run(to_next, x))
        if comm.rank > 0:
            assert torch.equal(got, x - 1)
        assert comm.record()["collectives"][-1]["plan"] == to_next.name
    # Rank 0 waits for no output of to_next: ending now, it would take its part of the call along.
    comm.destroy()
    print("right")
"""


@pytest.mark.skipif(devices() == 0, reason="there is no CUDA device")
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [
        (2, 1),
        pytest.param(4, 1, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
    ],
)
def test_registered_programs_serve_calls_on_tensors(tmp_path, capfd, ranks, nodes):
    pytest.importorskip("torch")
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(PROCESSES))
    paths = [LIBRARY / "all_to_next.py", LIBRARY / "ring_all_reduce.py"]
    outcome = launch([str(one) for one in (script, *paths)], ranks, nodes=nodes, timeout=180)
    output = capfd.readouterr()
    assert outcome.ok, (outcome, output)
    assert output.out.split().count("right") == ranks


@pytest.mark.skipif(devices() == 0, reason="there is no CUDA device")
@pytest.mark.parametrize("name", ["ring_all_reduce", "two_step_all_to_all", "all_to_next"])
def test_the_command_runs_a_plan_on_devices(tmp_path, name):
    plan, source = tmp_path / "plan.json", LIBRARY / f"{name}.py"
    compiled = invoke("compile", source, "--ranks", 4, "--nodes", 2, "-o", plan)
    assert compiled.exit_code == 0, compiled.output
    ran = invoke("run", plan, "--device", "cuda", "--count", 5003)
    assert ran.exit_code == 0, ran.output
    assert ("ran to its end" if name == "all_to_next" else "blocks of 5003: right") in ran.output


def invoke(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])
