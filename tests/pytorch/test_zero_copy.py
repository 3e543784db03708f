"""Zero-copy tensors, whatever PyTorch's allocator does; one GPU is enough."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.xdist_group("pytorch zero_copy"),
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no GPU"),
]

PROGRAM = "zero_copy.py"
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ALLOCATORS = {"default": {}, "expandable": EXPANDABLE, "pool": EXPANDABLE}


@pytest.fixture(scope="module", params=ALLOCATORS)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    source = "pool" if request.param == "pool" else "default"
    return run(
        PROGRAM,
        2,
        source,
        seconds=100,
        DEVICE="cuda",
        UNISONO_LOG="info",
        UNISONO_GPU_ZERO_COPY_MIN_BYTES="256KiB",
        **ALLOCATORS[request.param],
    )


@pytest.mark.parametrize("name", [*checks_of(PROGRAM), "ended"])
def test_zero_copy(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts) + outcome.text()
