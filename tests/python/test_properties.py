"""Random shapes, counts, types and choices, against NumPy."""

from contextlib import ExitStack
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest
import unisono
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unisono import plans
from unisono.testing import run_ranks

TYPES = st.sampled_from(
    ["int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64"]
)
COUNTS = st.one_of(st.integers(0, 40), st.sampled_from([127, 1021, 65_537, 200_003]))
# A fixed seed: a failure must come back.
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class Ranks:
    """A job that stays, so that an example costs a call and not a bootstrap."""

    def __init__(self, ranks, nodes):
        self.size = ranks
        self.placement = plans.Placement(ranks, nodes)
        self._questions = [SimpleQueue() for _ in range(ranks)]
        self._answers = [SimpleQueue() for _ in range(ranks)]
        self._job = Thread(target=run_ranks, args=(ranks, self._serve, nodes), daemon=True)
        self._job.start()

    def _serve(self, comm):
        while (question := self._questions[comm.rank].get()) is not None:
            try:
                self._answers[comm.rank].put((question(comm), None))
            except Exception as error:
                self._answers[comm.rank].put((None, error))

    def ask(self, question):
        for questions in self._questions:
            questions.put(question)
        answers = [answers.get(timeout=180) for answers in self._answers]
        for _, error in answers:
            if error is not None:
                raise error
        return [answer for answer, _ in answers]

    def close(self):
        for questions in self._questions:
            questions.put(None)
        self._job.join(180)


@pytest.fixture(scope="module")
def jobs():
    with ExitStack() as stack:
        made = [Ranks(ranks, nodes) for ranks, nodes in [(2, 1), (3, 2), (5, 2)]]
        for one in made:
            stack.callback(one.close)
        yield made


def choices(data, job, collective, root=0, in_place=False):
    """An algorithm and a protocol that can serve, or the table's choice."""
    if data.draw(st.booleans(), label="by table"):
        return {}
    able = [
        (algorithm.name, protocol)
        for algorithm in plans.algorithms(collective)
        for protocol in unisono.protocols()
        if not algorithm.why_not(job.placement, root=root, in_place=in_place, protocol=protocol)
    ]
    name, protocol = data.draw(st.sampled_from(able), label="algorithm and protocol")
    return {"algorithm": name, "protocol": protocol}


def small_numbers(data, shape, dtype):
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    return np.random.default_rng(seed).integers(0, 9, shape).astype(dtype)


@QUICK
@given(st.data(), st.integers(0, 2), COUNTS, TYPES, st.booleans())
def test_all_reduce(jobs, data, which, count, dtype, in_place):
    job = jobs[which]
    xs = small_numbers(data, (job.size, count), dtype)
    options = choices(data, job, "all_reduce", in_place=in_place)

    def ask(comm):
        x = xs[comm.rank].copy()
        out = comm.all_reduce(x, out=x if in_place else None, **options)
        if not in_place:
            np.testing.assert_array_equal(x, xs[comm.rank])
        return out

    for out in job.ask(ask):
        np.testing.assert_array_equal(out, xs.sum(axis=0).astype(dtype))


@QUICK
@given(st.data(), st.integers(0, 2), COUNTS, TYPES)
def test_scatter_of_sums_and_gather_of_blocks(jobs, data, which, count, dtype):
    """reduce_scatter, then all_gather, is all_reduce."""
    job = jobs[which]
    xs = small_numbers(data, (job.size, job.size * count), dtype)
    scatter = choices(data, job, "reduce_scatter")
    gather = choices(data, job, "all_gather")

    def ask(comm):
        return comm.all_gather(comm.reduce_scatter(xs[comm.rank], **scatter), **gather)

    for out in job.ask(ask):
        np.testing.assert_array_equal(out, xs.sum(axis=0).astype(dtype))


@QUICK
@given(st.data(), st.integers(0, 2), COUNTS, TYPES)
def test_roots(jobs, data, which, count, dtype):
    """scatter, then gather at another root, then broadcast, brings all of it everywhere."""
    job = jobs[which]
    there = data.draw(st.integers(0, job.size - 1), label="scatter's root")
    here = data.draw(st.integers(0, job.size - 1), label="gather's root")
    x = small_numbers(data, job.size * count, dtype)
    scatter = choices(data, job, "scatter", there)
    gather = choices(data, job, "gather", here)
    broadcast = choices(data, job, "broadcast", here)

    def ask(comm):
        part = np.full(count, 99).astype(dtype)
        comm.scatter(x if comm.rank == there else None, there, out=part, **scatter)
        whole = comm.gather(part, here, **gather)
        if whole is None:
            whole = np.full_like(x, 99)
        return comm.broadcast(whole, here, **broadcast)

    for out in job.ask(ask):
        np.testing.assert_array_equal(out, x)


@QUICK
@given(st.data(), st.integers(0, 2), COUNTS, TYPES)
def test_all_to_all_is_its_own_inverse(jobs, data, which, count, dtype):
    job = jobs[which]
    xs = small_numbers(data, (job.size, job.size * min(count, 5000)), dtype)
    options = choices(data, job, "all_to_all")

    def ask(comm):
        once = comm.all_to_all(xs[comm.rank], **options)
        return once, comm.all_to_all(once, **options)

    size = xs.shape[1] // job.size
    for rank, (once, twice) in enumerate(job.ask(ask)):
        expected = xs.reshape(job.size, job.size, size)[:, rank].ravel()
        np.testing.assert_array_equal(once, expected)
        np.testing.assert_array_equal(twice, xs[rank])
