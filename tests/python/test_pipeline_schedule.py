"""Pipeline schedules: layers of stages, the order of passes, bubbles against closed forms."""

import pytest
from unisono.errors import MisuseError
from unisono.simulate.schedule import check_batches, in_flight, order, run, span, split_layers

SHAPES = [(1, 1, 4), (2, 1, 6), (4, 1, 2), (4, 1, 16), (2, 2, 4), (4, 3, 8), (8, 2, 8), (3, 5, 9)]


def test_126_layers_on_16_stages_are_those_of_llama_3() -> None:
    """The Llama 3 Herd of Models, section 3.3.2: one layer fewer on the first and on the last."""
    assert split_layers(126, 16) == [7, *[8] * 14, 7]
    assert split_layers(126, 128) == [0, *[1] * 126, 0]


@pytest.mark.parametrize("layers", [1, 7, 32, 80, 126])
@pytest.mark.parametrize("positions", [1, 3, 8, 9])
def test_layers_are_split_without_loss_and_evenly(layers: int, positions: int) -> None:
    if layers < positions - 2:
        with pytest.raises(MisuseError, match=f"at most {layers + 2} have work"):
            split_layers(layers, positions)
        return
    parts = split_layers(layers, positions)
    assert sum(parts) == layers
    assert max(parts) - min(parts) <= 1
    assert parts[len(parts) // 2] == max(parts)


@pytest.mark.parametrize(("stages", "virtual", "batches"), SHAPES)
def test_every_pass_runs_once_and_what_is_kept_is_known(
    stages: int, virtual: int, batches: int
) -> None:
    for stage in range(stages):
        slots = list(order(stage, stages, virtual, batches))
        wanted = {(f, b, c) for f in (True, False) for b in range(batches) for c in range(virtual)}
        assert {(one.is_forward, one.batch, one.chunk) for one in slots} == wanted
        assert len(slots) == len(wanted)
        held = most = 0
        for one in slots:
            held += 1 if one.is_forward else -1
            most = max(most, held)
        assert in_flight(stage, stages, virtual, batches) == most


@pytest.mark.parametrize(("stages", "virtual", "batches"), SHAPES)
def test_the_bubble_is_stages_less_one_over_chunks(stages: int, virtual: int, batches: int) -> None:
    """Narayanan et al., section 2.2: (p - 1) / (v m) of the time without a bubble."""
    forward, backward = 1.0 / virtual, 2.0 / virtual
    positions = stages * virtual
    done = run([forward] * positions, [backward] * positions, stages, batches, 0.0)
    ideal = batches * 3.0
    bubble = max(one.ended for one in done) / ideal - 1
    assert bubble == pytest.approx((stages - 1) / (virtual * batches))


@pytest.mark.parametrize(("stages", "virtual", "batches"), [(4, 1, 64), (4, 3, 48), (8, 2, 80)])
@pytest.mark.parametrize("hop", [0.0, 0.4])
def test_long_schedules_take_what_their_repeated_part_says(
    stages: int, virtual: int, batches: int, hop: float
) -> None:
    positions = stages * virtual
    # The ends are longer and the middle uneven, as an embedding, a head and 126 layers make it.
    forward = [1.0 + 0.3 * (i == positions - 1) + 0.1 * (i % 2) for i in range(positions)]
    backward = [2 * time for time in forward]
    whole = max(one.ended for one in run(forward, backward, stages, batches, hop))
    assert span(forward, backward, stages, batches, hop) == pytest.approx(whole, rel=1e-3)


def test_micro_batches_that_stages_do_not_divide_are_refused() -> None:
    check_batches(4, 1, 6)
    with pytest.raises(MisuseError, match="6 micro-batches; with virtual 2, pipeline 4 must"):
        check_batches(4, 2, 6)
