"""torch.ops.unisono under torch.compile and torch.export, on two ranks."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = [pytest.mark.matrix, pytest.mark.xdist_group("pytorch compiled")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    cache = tmp_path_factory.mktemp("inductor")
    return run("compiled.py", 2, TORCHINDUCTOR_CACHE_DIR=str(cache))


@pytest.mark.parametrize("name", checks_of("compiled.py"))
def test_compiled(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)
