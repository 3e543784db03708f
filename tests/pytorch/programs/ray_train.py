"""Two workers of Ray Train over a group of Unisono; Ray starts them, so that one process runs this.

Before PyTorch 2.14 a worker must import unisono.torch before Ray makes the group.
"""

import tempfile

import ray
from checks import report
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train() -> None:
    """Each worker's part."""
    import ray.train
    import torch
    import torch.distributed as dist
    import unisono.torch

    x = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    ran = {entry["collective"] for entry in unisono.torch.communicator().record()["collectives"]}
    assert "all_reduce" in ran
    ray.train.report({"backend": dist.get_backend()})


def main() -> None:
    """Runs it, and reports what the workers said."""
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        runtime_env={"worker_process_setup_hook": "unisono.torch.register"},
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            torch_config=TorchConfig(backend="unisono"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        report("backend", trainer.fit().metrics["backend"])


if __name__ == "__main__":
    main()
