"""torchft over a group of Unisono's that gets new members with each quorum.

Each process is a replica, with a world of its own. The last one dies after two steps.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import unisono.torch
from checks import rank, report, size
from torch import nn
from torchft import Manager
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel
from torchft.optim import OptimizerWrapper

LIMIT = timedelta(seconds=60)
STEPS = 6


def lighthouse(store: dist.TCPStore) -> tuple[str, LighthouseServer | None]:
    """Its address; the first process has it."""
    if rank() > 0:
        return store.get("lighthouse").decode(), None
    server = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60000, heartbeat_timeout_ms=10000
    )
    address = server.address().replace(os.uname().nodename, "127.0.0.1")
    store.set("lighthouse", address)
    return address, server


def main() -> None:
    """Trains, and reports who took part in each step that was committed."""
    everybody = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size(), rank() == 0)
    address, server = lighthouse(everybody)
    dist.init_process_group(
        "unisono",
        store=dist.HashStore(),
        rank=0,
        world_size=1,
        timeout=LIMIT,
        enable_reconfigure=True,
    )
    torch.manual_seed(7)
    model = nn.Linear(4, 1)
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=dist.group.WORLD,
        min_replica_size=2,
        load_state_dict=model.load_state_dict,
        state_dict=model.state_dict,
        replica_id=f"replica-{rank()}",
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=own.port,
        hostname="127.0.0.1",
        lighthouse_addr=address,
        use_async_quorum=False,
        timeout=LIMIT,
    )
    wrapped = DistributedDataParallel(manager, model)
    optimizer = OptimizerWrapper(manager, torch.optim.SGD(model.parameters(), 0.1))
    numbers = torch.Generator().manual_seed(rank())
    members = []
    while manager.current_step() < STEPS:
        step = manager.current_step()
        if step == 2 and rank() == size() - 1:
            os._exit(0)
        optimizer.zero_grad()
        x = torch.randn(16, 4, generator=numbers)
        nn.functional.mse_loss(wrapped(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        if manager.current_step() > step:
            members.append(manager.num_participants())
    report("backend", dist.get_backend())
    ran = {entry["collective"] for entry in unisono.torch.communicator().record()["collectives"]}
    report("ran", "all_reduce" if "all_reduce" in ran else f"only {sorted(ran)}")
    report("members", " ".join(map(str, members)))
    everybody.set(f"weights/{rank()}", str(model.weight.tolist()))
    others = [everybody.get(f"weights/{other}") for other in range(size() - 1)]
    report("trained", str(len(set(others)) == 1))
    manager.shutdown()
    everybody.set(f"done/{rank()}", "")
    if server is not None:
        everybody.wait([f"done/{other}" for other in range(size() - 1)])
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
