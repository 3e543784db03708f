"""A job that hangs: 16 ranks with tensor, data and pipeline parallelism, one of which skips a call.

    mkdir dumps
    UNISONO_DUMP_DIRECTORY=dumps unisono run -n 16 examples/hang_in_three_dimensions.py
    unisono doctor dumps

docs/how-to/doctor-examples.md shows what the doctor says.
"""

import numpy as np
import unisono

TENSOR, DATA = 2, 2
FAULTY_RANK, FAULTY_STEP = 5, 6

world = unisono.init(timeout=5)
tensor_rank, rest = world.rank % TENSOR, world.rank // TENSOR
data_rank, stage = rest % DATA, rest // DATA
tensor = world.split(rest)
data = world.split(tensor_rank + TENSOR * stage)
pipeline = world.split(tensor_rank + TENSOR * data_rank)
assert tensor is not None
assert data is not None
assert pipeline is not None

activations = np.zeros(1 << 18, dtype=np.float32)
gradients = np.ones(1 << 16, dtype=np.float32)
for step in range(20):
    if stage > 0:
        pipeline.recv(activations, stage - 1)
    tensor.all_reduce(activations)
    if (world.rank, step) != (FAULTY_RANK, FAULTY_STEP):
        tensor.all_reduce(activations)
    if stage < pipeline.size - 1:
        pipeline.send(activations, stage + 1)
    data.all_reduce(gradients)
    world.barrier()
