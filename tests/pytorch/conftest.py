"""These tests need PyTorch with its distributed package; without it they are skipped."""

import pytest

distributed = pytest.importorskip(
    "torch.distributed", reason="PyTorch is not installed: pip install unisono[torch]"
)
if not distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)
