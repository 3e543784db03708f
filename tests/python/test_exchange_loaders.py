"""Files for the executors of MSCCL's XML keep to what their loaders take."""

from pathlib import Path

import pytest
from support.msccl_loader import LOADERS, load
from unisono import exchange, lang, plans
from unisono.errors import MisuseError
from unisono.exchange.schema import COLLECTIVES

LIBRARY = sorted((Path(__file__).parents[2] / "examples" / "language").glob("*.py"))


def written(plan, target):
    return exchange.write_plan(plan, target)


def refusal(plan, target):
    with pytest.raises(MisuseError) as caught:
        exchange.write_plan(plan, target)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("target", LOADERS)
@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_loaders_take_the_library(path, target):
    (one,) = lang.load(path)
    if one.collective == "custom" and target != "msccl":
        assert "of custom" in refusal(one.compile(4, 2).plan, target)
        return
    for shape in ((1, 1), (4, 2), (8, 1), (16, 2)):
        for in_place in {False, one.in_place}:
            for protocol in ("simple", "ll", "ll128"):
                made = one.compile(*shape, in_place=in_place, protocol=protocol, target=target)
                load(written(made.plan, target), LOADERS[target])


@pytest.mark.parametrize("target", LOADERS)
def test_loaders_take_the_built_in_plans(target):
    known = set(exchange.targets()[target].collectives)
    taken = 0
    for entry in plans.algorithms():
        placement = plans.Placement(8, 2)
        if entry.why_not(placement):
            continue
        plan = entry.plan(placement)
        if not known & {key for key, name in COLLECTIVES.items() if name == plan.collective}:
            assert f"which {target} does not know" in refusal(plan, target)
            continue
        text = written(plan, target)
        load(text, LOADERS[target])
        back = exchange.read_msccl_xml(text)
        assert back.verify().ok
        assert written(back, target) == text
        taken += 1
    assert taken > 40


@pytest.mark.parametrize("first", [1, 10, 16, 17])
def test_no_more_reductions_are_joined_than_executors_have_room_for(first):
    # The loader counts from the thread block's beginning, so its own bound comes at the wrong row.
    copies = "".join(f"    copy input[0] -> scratch[{i}]\n" for i in range(42))
    rows = "".join(f"    reduce scratch[{i}] -> scratch[40]\n" for i in range(first))
    rows += "".join(f"    reduce scratch[{i}] -> scratch[41]\n" for i in range(40))
    text = "plan sums version 1\ncollective reduce ranks 1\nrank 0 scratch 42\n"
    text += f"  block 0 channel 0\n    copy input[0] -> output[0]\n{copies}{rows}"
    xml = written(plans.Plan.from_text(text), "msccl")
    ((joined,),) = load(xml, LOADERS["msccl"])
    assert sum(joined) == first + 40
    assert max(joined) <= 16


def test_what_loaders_do_not_check_is_refused_when_written():
    alone = "plan alone version 1\ncollective broadcast ranks {} chunks {} {}\n"
    many = alone.format(1025, 1, "") + "".join(f"rank {i}\n" for i in range(1025))
    assert "has 1025 ranks; rccl reads at most 1024" in refusal(plans.Plan.from_text(many), "rccl")
    copies = "  block 0 channel 0\n    copy input[{0}] -> output[{0}]\n"
    for chunk, target in ((32767, None), (32768, "rccl")):
        plan = plans.Plan.from_text(alone.format(1, 32769, "") + "rank 0\n" + copies.format(chunk))
        if target is None:
            load(written(plan, "rccl"), LOADERS["rccl"])
        else:
            assert refusal(plan, target) == (
                "plan alone, rank 0: thread block 0 names chunk 32768; rccl knows 0 to 32767"
            )


def test_the_first_loader_has_names_and_sizes_of_its_own():
    scatter = plans.find_algorithm("direct_reduce_scatter").plan(plans.Placement(4))
    assert 'coll="reduce_scatter"' in written(scatter, "msccl")
    assert 'coll="reducescatter"' in written(scatter, "rccl")
    # 0 is no size at all there; without the attribute it is 128 MiB.
    assert "maxBytes" not in written(scatter, "msccl")
    assert 'maxBytes="0"' in written(scatter, "rccl")
    big = "plan big version 1\ncollective broadcast ranks 1\nbytes 134217729..\nrank 0\n"
    assert refusal(plans.Plan.from_text(big), "msccl") == (
        "plan big serves 134217729 bytes and more; msccl takes a file that names no greatest size "
        "up to 134217728: name one"
    )

    @lang.program(
        "custom", blocks=(1, 2), wanted=lambda _, rank, index: [(0, 0)] * rank * index or None
    )
    def uneven(p):
        p.chunk(0, "input", 0).copy(1, "output", 1)

    assert refusal(uneven.compile(2).plan, "msccl") == (
        "plan uneven, rank 0: 1 blocks of input and 2 of output; msccl runs custom programs that "
        "have as many"
    )


def test_the_size_of_a_gather_is_that_of_one_block():
    gather = plans.find_algorithm("binomial_gather").plan(plans.Placement(4))
    text = written(gather, "rccl")
    assert f'nchunksperloop="{gather.chunks_per_block}"' in text
    load(text, LOADERS["rccl"])
    back = exchange.read_msccl_xml(text)
    assert (back.input_blocks(0), back.output_blocks(0)) == (1, 4)
    assert back.verify().ok
