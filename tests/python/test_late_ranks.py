"""A rank that has ended its part and exits, while another is late."""

import textwrap

import pytest
from unisono.launcher import launch

EXITS_EARLY = """
    import time

    import numpy as np
    import unisono

    comm = unisono.init()
    there = np.arange({count}, dtype=np.int64)
    comm.barrier()
    if comm.rank == 1:
        time.sleep(4)
    out = comm.broadcast(there if comm.rank == 0 else np.zeros_like(there), root=0)
    np.testing.assert_array_equal(out, there)
    print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [1000, 20_000, 60_000])
def test_a_rank_that_exits_leaves_what_it_has_sent(tmp_path, capfd, count):
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(EXITS_EARLY).format(count=count))
    outcome = launch([str(script)], 2, nodes=2, timeout=60)
    output = capfd.readouterr()
    assert outcome.ok, (outcome, output)
    assert output.out.split().count("right") == 2
