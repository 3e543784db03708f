"""Windows of tensors in CPU memory."""

import pytest
from unisono import Communicator
from unisono.testing import run_ranks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: unisono[torch]")


@pytest.mark.parametrize("kind", ["bfloat16", "float32", "int64"])
def test_windows_take_tensors_of_any_type(kind: str) -> None:
    dtype = getattr(torch, kind)

    def work(comm: Communicator) -> None:
        mine = torch.zeros(4, 3, dtype=dtype)
        row = torch.full((3,), 5 + comm.rank, dtype=dtype)
        before = (comm.rank - 1) % comm.size
        with comm.window(mine) as window:
            window[(comm.rank + 1) % comm.size, 1] = row
            window.fence()
            got = window.get(comm.rank, 1)
            assert torch.equal(window.get((comm.rank + 1) % comm.size)[1], row)
        assert torch.equal(got, torch.full((3,), 5 + before, dtype=dtype))
        assert torch.equal(mine[1], got)
        assert not mine[0].any()

    run_ranks(3, work)
