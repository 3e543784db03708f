"""One step of training in a framework, named by the argument, over a group of Unisono."""

import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import unisono.torch
from checks import rank, report, size
from torch import nn


def ran(group: dist.ProcessGroup | None) -> str:
    """What ran in a group, which must be Unisono's; None: the default group."""
    entries = unisono.torch.communicator(group).record()["collectives"]
    collectives = {entry["collective"] for entry in entries}
    return "all_reduce" if "all_reduce" in collectives else f"only {sorted(collectives)}"


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Another one on each rank."""
    numbers = torch.Generator().manual_seed(rank())
    x = torch.randn(16, 4, generator=numbers)
    return x, x.sum(1, keepdim=True)


class Model(nn.Linear):
    """Takes what the frameworks hand over, and returns its loss."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        super().__init__(4, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """The squared error."""
        return {"loss": nn.functional.mse_loss(super().forward(x), y)}


class Rows(torch.utils.data.Dataset):
    """The rows of a batch, as dictionaries."""

    def __init__(self) -> None:
        self.x, self.y = batch()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "y": self.y[index]}


def with_accelerate() -> nn.Module:
    """On CPUs accelerate takes no backend's name, but a group that is there already."""
    from accelerate import Accelerator

    dist.init_process_group("unisono")
    accelerator = Accelerator(cpu=True)
    model = Model()
    wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.backward(wrapped(*batch())["loss"])
    optimizer.step()
    return model


def with_trainer() -> nn.Module:
    """Hugging Face's Trainer stands on accelerate."""
    from transformers import Trainer, TrainingArguments

    dist.init_process_group("unisono")
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=2,
            per_device_train_batch_size=4,
            report_to=[],
            save_strategy="no",
            remove_unused_columns=False,
        )
        Trainer(model, arguments, train_dataset=Rows()).train()
    return model


def with_lightning() -> nn.Module:
    """The strategy names the backend."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, rows: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.model(**rows)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=size(),
        strategy=DDPStrategy(process_group_backend="unisono"),
        max_steps=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(Rows(), batch_size=4))
    return module.model


def with_deepspeed() -> tuple[nn.Module, dist.ProcessGroup]:
    """dist_backend names it; gradients are added in a group of DeepSpeed's own."""
    import deepspeed

    deepspeed.init_distributed(dist_backend="unisono")
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 16,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), config=config
    )
    engine.backward(engine(*batch())["loss"])
    engine.step()
    return model, engine.data_parallel_group


def main(name: str) -> None:
    """Trains, and reports whether all ranks have the same parameters, which have changed."""
    programs: dict[str, Callable[[], nn.Module | tuple[nn.Module, dist.ProcessGroup]]] = {
        "accelerate": with_accelerate,
        "transformers": with_trainer,
        "lightning": with_lightning,
        "deepspeed": with_deepspeed,
    }
    trained = programs[name]()
    model, group = trained if isinstance(trained, tuple) else (trained, None)
    report("backend", dist.get_backend(group))
    report("ran", ran(group))
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    changed = not torch.equal(mine, torch.cat([p.detach().flatten() for p in Model().parameters()]))
    report("trained", str(changed and all(torch.equal(part, parts[0]) for part in parts)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
