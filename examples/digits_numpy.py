"""Data-parallel training in NumPy: a small network learns the handwritten digits of scikit-learn.

    unisono run -n 4 examples/digits_numpy.py

The same training is done three times on the same batches: by one process; data-parallel, where
each rank computes the gradient of its share of the batch and all_reduce adds them up; and sharded
as in ZeRO, where each rank keeps only its shard of the parameters and of the optimizer's state:
all_gather brings the parameters together for a step, and reduce_scatter gives each rank its
shard's gradient.

How far the weights may differ. All three compute the same sums in different orders, in float64
with unit roundoff u = 2^-53. A sum of m terms differs between two orders by at most 2 m u times
the sum of the terms' sizes. A component of the gradient goes through sums of the 64 pixels, the
hidden units, the 10 classes and the samples of the batch, so that m is at most their total; G, the
largest sum of sizes over the samples of a batch, is measured in the run of one process. So a step
moves the weights apart by at most r = 2 m u G lr / (1 - momentum), since momentum multiplies what a
gradient does by 1 / (1 - momentum). What has moved apart grows as training goes on: the growth A is
measured too, by training again from weights changed by 1e-7 at random. After T steps the bound is
S T A r. The factor S = 10 covers what the two measurements may miss: they look along one path and
in one direction.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import unisono
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

PIXELS, HIDDEN, CLASSES = 64, 32, 10
TRAINING_SAMPLES, BATCH = 1437, 64
LEARNING_RATE, MOMENTUM = 0.1, 0.9
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
PARAMETERS = sum(int(np.prod(shape)) for shape in SHAPES)
PROBE, SAFETY = 1e-7, 10


@dataclass
class Digits:
    """Images as rows of pixels from 0 to 1, and which digit each shows."""

    images: Array
    labels: Labels

    def part(self, rows: slice | NDArray[np.int64]) -> "Digits":
        """The samples of some rows."""
        return Digits(self.images[rows], self.labels[rows])


def load(comm: unisono.Communicator) -> tuple[Digits, Digits]:
    """The samples to learn from and those to test with; rank 0 reads them, the others get them."""
    images, labels = np.empty((1797, PIXELS)), np.empty(1797, np.int64)
    if comm.rank == 0:
        from sklearn.datasets import load_digits

        loaded = load_digits()
        order = np.random.default_rng(0).permutation(len(loaded.target))
        images[:], labels[:] = loaded.data[order] / 16, loaded.target[order]
    comm.broadcast(images)
    comm.broadcast(labels)
    digits = Digits(images, labels)
    return digits.part(slice(TRAINING_SAMPLES)), digits.part(slice(TRAINING_SAMPLES, None))


def initial_weights() -> Array:
    random = np.random.default_rng(1)
    parts = [random.normal(0, shape[0] ** -0.5, shape) * (len(shape) == 2) for shape in SHAPES]
    return np.concatenate([part.ravel() for part in parts])


def layers(weights: Array) -> list[Array]:
    """The weights of each layer, as views of one vector."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])[:-1]
    parts = np.split(weights[:PARAMETERS], ends)
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def forward(weights: Array, images: Array) -> tuple[Array, Array]:
    """The hidden units, and the probabilities of the classes."""
    w1, b1, w2, b2 = layers(weights)
    hidden = np.tanh(images @ w1 + b1)
    scores = hidden @ w2 + b2
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def gradient(weights: Array, share: Digits, batch: int) -> tuple[Array, float]:
    """What `share` adds to the gradient of a batch of `batch` samples, and the sum of sizes G."""
    hidden, slope = forward(weights, share.images)
    slope[np.arange(len(share.labels)), share.labels] -= 1
    slope /= batch
    w2 = layers(weights)[2]
    inner = (slope @ w2.T) * (1 - hidden**2)
    parts = (share.images.T @ inner, inner.sum(0), hidden.T @ slope, slope.sum(0))
    sizes = max(
        (share.images.T @ abs(inner)).max(initial=0), (abs(hidden).T @ abs(slope)).max(initial=0)
    )
    return np.concatenate([part.ravel() for part in parts]), float(sizes)


def batches(epoch: int) -> list[NDArray[np.int64]]:
    """The rows of each batch of an epoch, the same on all ranks."""
    order = np.random.default_rng([2, epoch]).permutation(TRAINING_SAMPLES)
    return [order[start : start + BATCH] for start in range(0, TRAINING_SAMPLES, BATCH)]


@dataclass
class Score:
    """How well weights do: mean loss on the training samples, share of test samples right."""

    loss: float
    accuracy: float


def score(weights: Array, training: Digits, test: Digits) -> Score:
    _, guess = forward(weights, training.images)
    loss = -np.log(guess[np.arange(len(training.labels)), training.labels]).mean()
    _, answer = forward(weights, test.images)
    return Score(float(loss), float((answer.argmax(1) == test.labels).mean()))


Progress = Callable[[Array], None]


def train_alone(
    start: Array, training: Digits, epochs: int, after_epoch: Progress
) -> tuple[Array, float]:
    """One process; returns the weights and the largest G."""
    weights, velocity, largest = start.copy(), np.zeros(PARAMETERS), 0.0
    for epoch in range(epochs):
        for rows in batches(epoch):
            slope, sizes = gradient(weights, training.part(rows), len(rows))
            largest = max(largest, sizes)
            velocity = MOMENTUM * velocity + slope
            weights -= LEARNING_RATE * velocity
        after_epoch(weights)
    return weights, largest


def train_data_parallel(
    comm: unisono.Communicator, start: Array, training: Digits, epochs: int, after_epoch: Progress
) -> Array:
    """Every rank has all parameters; gradients are added up by all_reduce."""
    weights, velocity = start.copy(), np.zeros(PARAMETERS)
    for epoch in range(epochs):
        for rows in batches(epoch):
            share = training.part(rows[comm.rank :: comm.size])
            slope, _ = gradient(weights, share, len(rows))
            comm.all_reduce(slope, out=slope)
            velocity = MOMENTUM * velocity + slope
            weights -= LEARNING_RATE * velocity
        after_epoch(weights)
    return weights


def train_sharded(
    comm: unisono.Communicator, start: Array, training: Digits, epochs: int, after_epoch: Progress
) -> Array:
    """Every rank has its shard of the parameters and of the velocity only."""
    shard_length = -(-PARAMETERS // comm.size)
    padded = np.zeros(shard_length * comm.size)
    padded[:PARAMETERS] = start
    shard = padded[comm.rank * shard_length : (comm.rank + 1) * shard_length].copy()
    velocity, shard_slope, slopes = (
        np.zeros_like(shard),
        np.empty_like(shard),
        np.zeros_like(padded),
    )
    for epoch in range(epochs):
        for rows in batches(epoch):
            comm.all_gather(shard, out=padded)
            share = training.part(rows[comm.rank :: comm.size])
            slopes[:PARAMETERS], _ = gradient(padded, share, len(rows))
            comm.reduce_scatter(slopes, out=shard_slope)
            velocity = MOMENTUM * velocity + shard_slope
            shard -= LEARNING_RATE * velocity
        comm.all_gather(shard, out=padded)
        after_epoch(padded[:PARAMETERS])
    return padded[:PARAMETERS].copy()


def growth(start: Array, training: Digits, epochs: int) -> float:
    """How much a small change of the initial weights grows in training, at most (A)."""
    path: list[Array] = []
    train_alone(start, training, epochs, lambda weights: path.append(weights.copy()))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], PARAMETERS)
    changed: list[Array] = []
    train_alone(
        start + PROBE * signs, training, epochs, lambda weights: changed.append(weights.copy())
    )
    apart = [np.abs(a - b).max() for a, b in zip(path, changed, strict=True)]
    return float(max([PROBE, *apart]) / PROBE)


def bound(steps: int, grown: float, sizes: float) -> float:
    """How far apart the weights may be after `steps` steps."""
    terms = PIXELS + HIDDEN + CLASSES + BATCH
    step = 2 * terms * 2.0**-53 * sizes * LEARNING_RATE / (1 - MOMENTUM)
    return SAFETY * steps * grown * step


def same_on_all_ranks(comm: unisono.Communicator, weights: Array) -> bool:
    """Whether all ranks have these weights bit for bit."""
    everyone = comm.all_gather(weights.view(np.uint64)).reshape(comm.size, -1)
    return bool((everyone == everyone[0]).all())


def main() -> int:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the results and curves to this file")
    arguments = parser.parse_args()
    epochs: int = arguments.epochs

    with unisono.init() as comm:
        training, test = load(comm)
        start = initial_weights()
        curves: dict[str, list[Score]] = {"one process": [], "all_reduce": [], "sharded": []}

        def keeping(name: str) -> Progress:
            def keep(weights: Array) -> None:
                if comm.rank == 0:
                    curves[name].append(score(weights, training, test))

            return keep

        replicas = train_data_parallel(comm, start, training, epochs, keeping("all_reduce"))
        shards = train_sharded(comm, start, training, epochs, keeping("sharded"))
        same = same_on_all_ranks(comm, replicas) and same_on_all_ranks(comm, shards)
        ok = True
        if comm.rank == 0:
            alone, sizes = train_alone(start, training, epochs, keeping("one process"))
            steps = epochs * len(batches(0))
            limit = bound(steps, growth(start, training, epochs), sizes)
            apart = {
                name: float(np.abs(weights - alone).max())
                for name, weights in (("all_reduce", replicas), ("sharded", shards))
            }
            ok = same and max(apart.values()) <= limit
            print(f"digits: {comm.size} ranks, {epochs} epochs, {steps} steps of {BATCH} samples")
            for name, scores in curves.items():
                difference = f", weights differ by {apart[name]:.1e}" if name in apart else ""
                print(f"  {name:<12} accuracy {scores[-1].accuracy:.1%}{difference}")
            print(f"  bound {limit:.1e}: {'kept' if ok or not same else 'EXCEEDED'}")
            print(f"  weights on all ranks: {'the same, bit for bit' if same else 'DIFFERENT'}")
            if arguments.json:
                result = {
                    "ranks": comm.size,
                    "nodes": comm.nodes,
                    "steps": steps,
                    "batch": BATCH,
                    "bound": limit,
                    "difference": apart,
                    "same_on_all_ranks": same,
                    "ok": ok,
                    "curves": {
                        name: {
                            "loss": [one.loss for one in scores],
                            "accuracy": [one.accuracy for one in scores],
                        }
                        for name, scores in curves.items()
                    },
                }
                arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
