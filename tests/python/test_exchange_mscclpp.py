"""One-sided programs as execution plans of MSCCL++, run by what its executor does with them."""

import json
from collections import deque

import numpy as np
import pytest
from unisono import exchange, lang, plans
from unisono.errors import MisuseError
from unisono.lang import program


@program("all_gather", chunks=2)
def puts(p):
    for rank in range(p.ranks):
        c = p.chunk(rank, "input", 0, 2)
        c.copy(rank, "output", 2 * rank)
        for step in range(1, p.ranks):
            to = (rank + step) % p.ranks
            c.put(to, "output", 2 * rank)
            p.signal(rank, to)
            p.wait(to, rank)


@program("all_reduce", chunks=lambda shape: shape.ranks)
def reads(p):
    for rank in range(p.ranks):
        c = p.chunk(rank, "input", rank).copy(rank, "output", rank)
        for step in range(1, p.ranks):
            c = c.read_reduce(p.chunk((rank + step) % p.ranks, "input", rank))
        for step in range(1, p.ranks):
            to = (rank + step) % p.ranks
            c.put(to, "output", rank)
            p.signal(rank, to)
            p.wait(to, rank)


@program("all_reduce", chunks=lambda shape: shape.ranks)
def scratches(p):
    """Everybody puts chunk i into rank i's scratch, which adds in a thread block of its own."""
    p.scratch("from", p.ranks)
    for i in range(p.ranks):
        for rank in range(p.ranks):
            if rank != i:
                p.chunk(rank, "input", i).put(i, "from", rank)
                p.signal(rank, i)
                p.wait(i, rank)
        with p.thread_block(0):
            c = p.chunk(i, "input", i).copy(i, "output", i)
            for step in range(1, p.ranks):
                c = c.reduce(p.chunk(i, "from", (i + step) % p.ranks))
        for step in range(1, p.ranks):
            c.put((i + step) % p.ranks, "output", i, channel=1)
            p.signal(i, (i + step) % p.ranks, channel=1)
            p.wait((i + step) % p.ranks, i, channel=1)


class Executor:
    """Runs a document on arrays of one element a chunk, thread blocks in turn."""

    def __init__(self, document, inputs):
        self.gpus = document["gpus"]
        self.memory = [
            {
                "i": np.array(inputs[gpu["id"]]),
                "o": np.full(gpu["output_chunks"], -1),
                "s": np.full(gpu["scratch_chunks"], -1),
            }
            for gpu in self.gpus
        ]
        self.semaphores = [[one["init_value"] for one in gpu["semaphores"]] for gpu in self.gpus]
        # The k-th channel of a rank to another one meets the k-th of that one to it.
        self.tokens = {}

    def channel(self, rank, block, index):
        """The two ends' names of a channel: rank, peer, and how many to that peer come before."""
        number = block["channels"][0]["channel_ids"][index]
        peers = self.gpus[rank]["channels"][0]["connected_to"]
        return rank, peers[number], peers[:number].count(peers[number])

    def run(self):
        waiting = deque(
            (gpu["id"], block, deque(block["ops"]))
            for gpu in self.gpus
            for block in gpu["threadblocks"]
        )
        idle = 0
        while waiting and idle <= len(waiting):
            rank, block, ops = waiting.popleft()
            moved = False
            while ops and self.step(rank, block, ops[0]):
                ops.popleft()
                moved = True
            idle = 0 if moved else idle + 1
            if ops:
                waiting.append((rank, block, ops))
        assert not waiting, "deadlock"
        assert all(count == 0 for counts in self.semaphores for count in counts)
        assert all(count == 0 for count in self.tokens.values())
        return [memory["o"] for memory in self.memory]

    def view(self, rank, block, place):
        if "type" in place:
            owner, buffer = rank, place["type"]
        else:
            ids = block["remote_buffer_refs"][0]["remote_buffer_ids"]
            remote = self.gpus[rank]["remote_buffers"][ids[place["buffer_id"]]]
            assert remote["access_channel_types"] == ["memory"]
            owner, buffer = remote["rank"], remote["type"]
        memory = self.memory[owner][buffer][place["index"] : place["index"] + place["size"]]
        assert memory.size == place["size"]
        return memory

    def step(self, rank, block, op):
        if op["name"] == "signal":
            here, peer, number = self.channel(rank, block, op["channel_ids"][0])
            key = (here, peer, number)
            self.tokens[key] = self.tokens.get(key, 0) + 1
        elif op["name"] == "wait":
            here, peer, number = self.channel(rank, block, op["channel_ids"][0])
            key = (peer, here, number)
            if not self.tokens.get(key, 0):
                return False
            self.tokens[key] -= 1
        elif op["name"] == "sem_release":
            self.semaphores[rank][op["semaphore_ids"][0]] += 1
        elif op["name"] == "sem_acquire":
            if not self.semaphores[rank][op["semaphore_ids"][0]]:
                return False
            self.semaphores[rank][op["semaphore_ids"][0]] -= 1
        else:
            sources = [self.view(rank, block, place) for place in op["src_buff"]]
            (target,) = (self.view(rank, block, place) for place in op["dst_buff"])
            assert op["name"] in ("put", "copy") or op["reduce_op"] == "sum"
            target[:] = sum(source.copy() for source in sources)
        return True


@pytest.mark.parametrize("one", [puts, reads, scratches], ids=lambda one: one.name)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_execution_plans_do_what_the_collective_asks(one, ranks):
    plan = one.compile(ranks, target="mscclpp", check_passes=True).plan
    document = json.loads(exchange.write_plan(plan, "mscclpp"))
    assert document["collective"] == {"all_gather": "allgather"}.get(one.collective, "allreduce")
    chunks = plan.chunks_per_block
    inputs = [np.arange(chunks) * 7 + 100 * rank for rank in range(ranks)]
    wanted = np.concatenate(inputs) if one is puts else sum(inputs)
    for output in Executor(document, inputs).run():
        np.testing.assert_array_equal(output, wanted)


@program("broadcast", chunks=2)
def star(p):
    p.chunk(0, "input", 0, 2).copy(0, "output", 0)
    for rank in range(1, p.ranks):
        p.chunk(0, "input", 0, 2).put(rank, "output", 0)
        p.signal(0, rank)
        p.wait(rank, 0)


def test_every_rank_has_chunks_of_input_and_output():
    # The executor divides sizes by both, whether a rank has data there or not.
    plan = star.compile(3).plan
    assert plan.input_blocks(1) == 0
    document = json.loads(exchange.write_plan(plan, "mscclpp"))
    for gpu in document["gpus"]:
        assert (gpu["input_chunks"], gpu["output_chunks"]) == (2, 2)
    for output in Executor(document, [np.array([7, 8])] * 3).run():
        np.testing.assert_array_equal(output, [7, 8])


def test_thread_blocks_wait_for_each_other_through_semaphores():
    plan = scratches.compile(3).plan
    (gpu, *_) = json.loads(exchange.write_plan(plan, "mscclpp"))["gpus"]
    names = [op["name"] for block in gpu["threadblocks"] for op in block["ops"]]
    assert names.count("sem_acquire") == names.count("sem_release") > 0
    assert len(gpu["semaphores"]) <= 16
    assert set(names) <= {"sem_acquire", "sem_release", "signal", "wait", "put", "copy", "re"}


def test_what_the_format_has_not_is_refused():
    with pytest.raises(MisuseError, match="mscclpp cannot run this operation"):
        exchange.write_plan(plans.Plan.from_text(TWO_SIDED), "mscclpp")
    with pytest.raises(MisuseError, match="has protocol ll; packets"):
        exchange.write_plan(puts.compile(2, protocol="ll").plan, "mscclpp")

    @program("broadcast", chunks=70)
    def long(p):
        for i in range(70):
            p.chunk(0, "input", i).copy(0, "output", i)
            p.chunk(0, "input", i).put(1, "output", i)
        p.signal(0, 1)
        p.wait(1, 0)

    with pytest.raises(lang.ProgramError, match="this step exceeds the 64 steps of a thread block"):
        long.compile(2, target="mscclpp")
    with pytest.raises(MisuseError, match=r"has \d+ operations; mscclpp runs at most 64"):
        exchange.write_plan(long.compile(2).plan, "mscclpp")


TWO_SIDED = """plan two version 1
collective broadcast ranks 2
rank 0
  block 0 channel 0 send 1
    send input[0]
    copy input[0] -> output[0]
rank 1
  block 0 channel 0 recv 0
    recv -> output[0]
"""
