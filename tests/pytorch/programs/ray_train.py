"""Two workers of Ray Train over a group of Unisono; Ray starts them, so that one process runs this.

Before PyTorch 2.14 a worker must import unisono.torch before Ray makes the group.
"""

import tempfile
from pathlib import Path

import ray
from checks import report
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train(config: dict[str, str]) -> None:
    """Each worker's part. Ray keeps what it reports with checkpoints only, so it writes a file."""
    import torch
    import torch.distributed as dist
    import unisono.torch

    x = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    ran = {entry["collective"] for entry in unisono.torch.communicator().record()["collectives"]}
    assert "all_reduce" in ran
    Path(config["folder"], str(dist.get_rank())).write_text(dist.get_backend())


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
            train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="unisono"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
        report("backend", " ".join(Path(folder, rank).read_text() for rank in "01"))


if __name__ == "__main__":
    main()
