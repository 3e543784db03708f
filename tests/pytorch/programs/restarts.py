"""A training that loses a rank, is restarted by torchrun, and goes on from its checkpoint."""

import datetime
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401
from torch import nn

folder, steps, loses_a_rank = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "broken"
dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=120))
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
saved = folder / "model.pt"
first = 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    first = state["step"]
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(first, steps):
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    if loses_a_rank and step == steps // 2 and attempt == 0 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step + 1}, folder / "new.pt")
        (folder / "new.pt").replace(saved)
    dist.barrier()
    (folder / f"steps-{rank}-{attempt}").write_text(f"{first} to {step}")
if rank == 0:
    (folder / "result").write_text(repr([p.tolist() for p in model.parameters()]))
dist.destroy_process_group()
