"""A program that does not import the backend: PyTorch 2.14 and newer find it by its entry point."""

import torch
import torch.distributed as dist
from checks import report, same, size

dist.init_process_group("unisono")
x = torch.ones(3)
dist.all_reduce(x)
same(x, torch.full((3,), float(size())))
work = dist.all_reduce(x, async_op=True)
work.wait()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
assert dist._supports_reconfigure()
assert not dist._supports_window()
assert not backend.supports_shrinking
assert backend.options.backend == "unisono"
report("found", dist.get_backend())
dist.destroy_process_group()
