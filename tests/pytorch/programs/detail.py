"""With TORCH_DISTRIBUTED_DEBUG=DETAIL: PyTorch compares the calls of all ranks."""

import datetime

import torch
import torch.distributed as dist
import unisono.torch
from checks import rank, report, same, size

dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=60))
x = torch.ones(4)
dist.all_reduce(x)
same(x, torch.full((4,), float(size())))
assert unisono.torch.communicator().size == size()
report("it works")
try:
    dist.all_reduce(torch.ones(4 + rank()))
except RuntimeError as error:
    report("it finds a mismatch", str(error))
