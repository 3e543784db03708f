"""One model in training, in parallel, over the groups of one backend."""

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from communication import Call, make_recorder
from corpus import Batches, read_corpus
from model import Gpt, Size, loss_of
from parallel import make_parallel
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


@dataclass
class Result:
    """What a training did.

    Attributes:
        losses: (step, mean over the step's batch), of every step.
        tested_loss: At the end, on text that was not trained on.
        tokens_per_second: Of all ranks.
        communication_seconds: In a step, with a collective under way; the mean of all ranks.
        communication_share: Of a step's time.
        timeline: By rank, the collectives of the recorded steps: name, start and end in seconds.
    """

    backend: str
    parallel: str
    ranks: int
    parameters: int
    corpus_bytes: int
    tokens_per_second: float = 0
    communication_share: float = 0
    communication_seconds: float = 0
    tested_loss: float = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    timeline: list[list[Call]] = field(default_factory=list)

    def write(self, file: Path) -> None:
        """As JSON."""
        file.write_text(json.dumps(asdict(self)) + "\n")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a Training is made of, for a command line."""
    parser.add_argument("--batch", type=int, default=16, help="sequences in a step, of all ranks")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")


class Training:
    """A model, its optimizer and what they have done so far.

    Args:
        options: See add_options.
        backend: Of the groups that it communicates in, which must be called by all ranks in turn.
        kind: One of parallel.KINDS.
    """

    def __init__(self, options: argparse.Namespace, backend: str, kind: str) -> None:
        ranks = dist.get_world_size()
        size = Size(options.layers, options.heads, options.width, options.context)
        if kind != "tp" and options.batch % ranks:
            raise SystemExit(
                f"a batch of {options.batch} sequences cannot be divided by {ranks} ranks"
            )
        text = read_corpus()
        self._batches = Batches(text, size.context, options.batch)
        torch.manual_seed(0)
        model = Gpt(size)
        parameters = sum(one.numel() for one in model.parameters())
        self._parallel = make_parallel(kind, model, backend)
        self._optimizer = torch.optim.AdamW(self._parallel.model.parameters(), lr=options.rate)
        self._recorder = make_recorder(backend)
        self.tokens_in_step = options.batch * size.context
        self.result = Result(backend, kind, ranks, parameters, len(text))

    def step(self, step: int) -> float:
        """Trains on one batch; its loss."""
        parallel = self._parallel
        tokens, following = self._batches.training(step, parallel.part, parallel.parts)
        loss = loss_of(parallel.model(tokens), following)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        mean = self._mean(loss)
        self.result.losses.append((step, mean))
        return mean

    @torch.no_grad()
    def test(self) -> None:
        """Finds the loss on text that was not trained on."""
        tokens, following = self._batches.tested(self._parallel.part, self._parallel.parts)
        self.result.tested_loss = self._mean(loss_of(self._parallel.model(tokens), following))

    def _mean(self, loss: torch.Tensor) -> float:
        loss = loss.detach().clone()
        if self._parallel.parts > 1:
            dist.all_reduce(loss, group=self._parallel.group)
        return float(loss) / self._parallel.parts

    def record(self) -> None:
        """Begins to record the communication, on all ranks at once."""
        self._recorder.start()

    def stop_recording(self, steps: int) -> None:
        """Ends it after so many steps, and brings the ranks' time-lines together."""
        calls, seconds = self._recorder.stop()
        result = self.result
        everyone: list[tuple[list[Call], float]] = [([], 0.0) for _ in range(result.ranks)]
        dist.all_gather_object(everyone, (calls, seconds))
        result.timeline = [calls for calls, _ in everyone]
        busy = [covered_seconds(calls) for calls, _ in everyone]
        result.communication_seconds = sum(busy) / len(busy) / steps
        result.communication_share = sum(
            part / whole for part, (_, whole) in zip(busy, everyone, strict=True)
        ) / len(busy)

    def save(self, folder: Path) -> None:
        """Writes a checkpoint, then names it as the last one."""
        steps = self.result.losses[-1][0] + 1 if self.result.losses else 0
        weights, moments = get_state_dict(self._parallel.model, self._optimizer)
        state = {"weights": weights, "optimizer": moments}
        checkpoint.save(state, checkpoint_id=folder / f"checkpoint-{steps}")
        if dist.get_rank() == 0:
            fresh = folder / "last.new"
            fresh.write_text(f"{steps}\n")
            fresh.rename(folder / "last")
        dist.barrier()

    def resume(self, folder: Path) -> int:
        """Loads the last checkpoint, if there is one; the number of steps that were made."""
        if not (folder / "last").exists():
            return 0
        steps = int((folder / "last").read_text())
        weights, moments = get_state_dict(self._parallel.model, self._optimizer)
        state = {"weights": weights, "optimizer": moments}
        checkpoint.load(state, checkpoint_id=folder / f"checkpoint-{steps}")
        set_state_dict(
            self._parallel.model,
            self._optimizer,
            model_state_dict=state["weights"],
            optim_state_dict=state["optimizer"],
        )
        return steps


def covered_seconds(calls: list[Call]) -> float:
    """How long at least one call was under way."""
    total, covered_to = 0.0, float("-inf")
    for _, start, end in sorted(calls, key=lambda call: call[1]):
        total += max(0.0, end - max(start, covered_to))
        covered_to = max(covered_to, end)
    return total


def is_over(elapsed: float, limit: float) -> bool:
    """Whether the time is over, as rank 0 sees it: all ranks must stop after the same step."""
    over = torch.tensor([elapsed > limit], dtype=torch.int32)
    dist.broadcast(over, 0)
    return bool(over)
