"""Plans run on CUDA devices, where there are any."""

import numpy as np
import pytest
from python.lang_programs import reads, ring
from unisono import _unisono as native
from unisono import lang
from unisono.devices import run_on_devices
from unisono.errors import Error, MisuseError
from unisono.lang import program


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
    with pytest.raises(MisuseError, match="reads does not run in the memory of this call: rank"):
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
