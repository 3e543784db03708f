"""Plans in MSCCL's XML: written, read back, and read as others write them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner
from unisono import exchange, lang, plans
from unisono.cli.app import app
from unisono.errors import MisuseError
from unisono.lang import program

LIBRARY = sorted((Path(__file__).parents[2] / "examples" / "language").glob("*.py"))
# Those that microsoft/msccl has, in our terms.
KNOWN = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")

# As msccl-tools writes: no outofplace, minBytes, maxBytes; memory of an algorithm in place is
# called i alone, and has no output. Rank 1 sums chunk 0, rank 0 chunk 1.
OLD_ALL_REDUCE = """
<algo name="two pairs" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="1" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="2" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="1" deps="0" hasdep="0"/>
      <step s="3" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="1" deps="0" hasdep="0"/>
      <step s="4" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="1" cnt="1" depid="0" deps="1" hasdep="1"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="3" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501

# Out of place it is right; in place the sum may be written before the summand was sent.
RACE_IN_PLACE = """
<algo name="swap" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="0" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="0" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501

# Out of place, and yet the sum grows in the input's memory: here it must live elsewhere.
OLD_REDUCE_SCATTER = """
<algo name="pairs" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="reduce_scatter" inplace="0">
  <gpu id="0" i_chunks="2" o_chunks="1" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="1" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501

# Chunks 0 and 1 of rank 1 travel together, one of them summed before and one as it was given.
OLD_MIXED = """
<algo name="mixed" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="reduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="rrc" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="3" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="2">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="3" type="s" srcbuf="s" srcoff="1" dstbuf="s" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="4" type="r" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501


def steps_of(xml):
    return [line.strip() for line in xml.splitlines() if "<step" in line]


def run_sum(plan, count=13):
    inputs = [
        np.random.default_rng(rank).integers(-99, 99, plan.input_blocks(rank) * count)
        for rank in range(plan.ranks)
    ]
    return lang.run(plan, inputs), sum(inputs)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_library_goes_to_xml_and_back(path):
    (one,) = lang.load(path)
    for in_place in {False, one.in_place}:
        plan = one.compile(4, 2, in_place=in_place, target="msccl").plan
        xml = exchange.write_plan(plan, "msccl")
        back = exchange.read_msccl_xml(xml)
        assert exchange.write_plan(back, "msccl") == xml
        if one.collective != "custom":
            assert back.verify().ok
        for rank in range(plan.ranks):
            blocks, others = plan.thread_blocks(rank), back.thread_blocks(rank)
            assert [[step.operation for step in block.steps] for block in blocks] == [
                [step.operation for step in block.steps] for block in others
            ]


def test_built_in_plans_with_loops_and_copies_that_send_go_to_xml_and_back():
    written = 0
    for entry in plans.algorithms():
        for in_place in (False, True):
            placement = plans.Placement(4, 2)
            if entry.why_not(placement, in_place=in_place):
                continue
            plan = entry.plan(placement, in_place=in_place)
            if entry.collective not in KNOWN:
                continue
            xml = exchange.write_plan(plan, "msccl")
            assert exchange.read_msccl_xml(xml).verify().ok
            written += 1
    assert written > 60


def test_files_of_the_older_tool_are_read_proved_and_run():
    plan = exchange.read_msccl_xml(OLD_ALL_REDUCE)
    assert (plan.name, plan.protocol, plan.in_place) == ("two_pairs", "ll", True)
    assert plan.verify().ok
    outputs, total = run_sum(plan)
    for output in outputs:
        np.testing.assert_array_equal(output, total)
    # What was given is copied before something is added; the wait that stood alone is the send's.
    assert [step.text for step in plan.thread_blocks(0)[1].steps] == [
        "copy input[1] -> output[1]",
        "reduce scratch[1] -> output[1]",
    ]
    assert plan.thread_blocks(0)[0].steps[2].after == [(1, 2)]

    plan = exchange.read_msccl_xml(OLD_REDUCE_SCATTER)
    assert (plan.collective, plan.in_place) == ("reduce_scatter", False)
    assert plan.verify().ok
    outputs, total = run_sum(plan)
    np.testing.assert_array_equal(np.concatenate(outputs), total)
    assert plan.scratch_blocks(0) == 1

    plan = exchange.read_msccl_xml(OLD_MIXED)
    assert plan.verify().ok, plan.verify().failures[0].describe()
    np.testing.assert_array_equal(run_sum(plan)[0][0], run_sum(plan)[1])


def test_what_no_loader_reads_says_nothing():
    more = OLD_ALL_REDUCE.replace("<algo ", '<algo maxcount="1" nthreadblocks="4" ', 1)
    assert exchange.read_msccl_xml(more) == exchange.read_msccl_xml(OLD_ALL_REDUCE)


def test_a_file_for_both_is_read_as_either():
    xml = OLD_REDUCE_SCATTER.replace('inplace="0"', 'inplace="1" outofplace="1"')
    assert not exchange.read_msccl_xml(xml).in_place
    in_place = exchange.read_msccl_xml(xml, in_place=True)
    assert in_place.in_place
    assert in_place.verify().ok
    with pytest.raises(MisuseError, match="does not serve calls in place"):
        exchange.read_msccl_xml(OLD_REDUCE_SCATTER, in_place=True)


def test_a_wrong_file_is_read_and_called_wrong():
    # Both add into chunk 0, and nobody into chunk 1.
    plan = exchange.read_msccl_xml(OLD_ALL_REDUCE.replace('type="rrc"', 'type="r"'))
    assert plan.verify().failures[0].problem == "wrong_result"


def test_reductions_into_one_place_wait_first_so_that_loaders_join_them():
    @program("reduce", chunks=4)
    def adds(p):
        p.scratch("other", 4 * p.ranks)
        p.chunk(0, "input", 0, 4).copy(0, "output", 0)
        for rank in range(1, p.ranks):
            p.chunk(rank, "input", 0, 4).copy(0, "other", 4 * rank)
        with p.thread_block(0):
            for rank in range(1, p.ranks):
                p.chunk(0, "output", 0, 4).reduce(p.chunk(0, "other", 4 * rank, 4))

    plan = adds.compile(4, fuse=False).plan
    xml = exchange.write_plan(plan, "rccl")
    first = xml.split('<tb id="0"')[1].split("</tb>")[0]
    parts = [dict(part.split("=") for part in line.split()[1:-1]) for line in steps_of(first)]
    assert [(one["type"], one["depid"] != '"-1"') for one in parts] == [
        ('"nop"', True), ('"nop"', True), ('"nop"', True),
        ('"re"', True), ('"re"', False), ('"re"', False),
    ]  # fmt: skip
    back = exchange.read_msccl_xml(xml)
    assert back.verify().ok
    assert exchange.write_plan(back, "rccl") == xml


def test_reductions_of_different_counts_are_kept_apart():
    text = """plan apart version 1
collective reduce ranks 1
chunks 2
rank 0 scratch 2
  block 0 channel 0
    copy input[0] -> output[0] x2
    copy input[0] -> scratch[0] x2
    reduce scratch[0] -> output[0] x2
    reduce scratch[0] -> output[0]
"""
    xml = exchange.write_plan(plans.Plan.from_text(text), "rccl")
    marks = [line.split("hasdep=")[1] for line in steps_of(xml)]
    assert marks == ['"0"/>', '"0"/>', '"1"/>', '"0"/>']


def test_limits_are_refused_with_their_place():
    def refusal(plan, target):
        with pytest.raises(MisuseError) as caught:
            exchange.write_plan(plan, target)
        return str(caught.value)

    ring = plans.find_algorithm("ring_all_reduce")
    long = ring.plan(plans.Placement(40))
    assert refusal(long, "rccl") == (
        "plan ring_all_reduce, rank 0: thread block 0 has 79 steps in the file; rccl runs at most "
        "64. More channels or instances divide them"
    )
    assert exchange.write_plan(long, "msccl")
    wide = ring.plan(plans.Placement(4), channels=33)
    assert refusal(wide, "msccl") == "plan ring_all_reduce: 33 channels; msccl runs 1 to 32"
    direct = plans.find_algorithm("direct_all_to_all")
    assert refusal(direct.plan(plans.Placement(33)), "rccl") == (
        "plan direct_all_to_all, rank 0: channel 0 has 33 thread blocks; rccl has at most 32"
    )
    rooted = plans.find_algorithm("binomial_broadcast").plan(plans.Placement(4), root=2)
    assert refusal(rooted, "rccl") == (
        "plan binomial_broadcast has root 2; MSCCL's XML names no root and means rank 0: compile "
        "it with root 0, or number the ranks so that the root is rank 0"
    )
    barrier = plans.find_algorithm("dissemination_barrier").plan(plans.Placement(4))
    assert "of barrier, which rccl does not know" in refusal(barrier, "rccl")
    assert refusal(long, "nccl") == (
        "there is no target 'nccl'; did you mean executor-nccl or rccl or msccl?"
    )
    assert "(send): mscclpp cannot run this operation" in refusal(long, "mscclpp")

    text = "plan many version 1\ncollective broadcast ranks 1 channels {}\nrank 0\n{}"
    # Thread blocks of one step each, every one awaiting the one before.
    blocks = [
        f"block {i} channel {i // 32}\ncopy input[0] -> output[0]{f' after {i - 1}:1' if i else ''}"
        for i in range(130)
    ]
    many = plans.Plan.from_text(text.format(5, "\n".join(blocks)))
    for target in ("executor-nccl", "msccl"):
        assert refusal(many, target) == (
            f"plan many, rank 0: thread block 129 waits for thread block 128; in {target} only 0 "
            "to 127 can be waited for"
        )
    assert refusal(many, "rccl") == ("plan many, rank 0: 130 thread blocks; rccl runs at most 64")
    copies = "\n".join(["copy input[0] -> output[0]"] * 64)
    blocks = [f"block {i} channel {i // 32}\n{copies}" for i in range(64)]
    assert refusal(plans.Plan.from_text(text.format(2, "\n".join(blocks))), "rccl") == (
        "plan many, rank 0: 4162 XML elements; rccl keeps at most 4095 of a rank"
    )


@program("broadcast", chunks=200)
def wide_star(p):
    for rank in range(p.ranks):
        p.chunk(p.root, "input", 0, 200).copy(rank, "output", 0)


@pytest.mark.parametrize("target", [None, "rccl"])  # divided when written, or when compiled
def test_steps_of_more_chunks_than_the_executor_moves_become_several(target):
    plan = wide_star.compile(3, target=target).plan
    text = exchange.write_plan(plan, "rccl")
    assert {int(count) for count in re.findall(r'cnt="(\d+)"', text)} == {66, 67}
    back = exchange.read_msccl_xml(text)
    assert back.verify(slots=2).ok
    inputs = [np.arange(1001), np.arange(0), np.arange(0)]  # as the file says
    for output in lang.run(back, inputs):
        np.testing.assert_array_equal(output, inputs[0])


def test_a_root_that_is_not_the_first_rank_is_refused():
    plan = wide_star.compile(3, root=2).plan
    assert plan.verify().ok
    with pytest.raises(MisuseError, match="has root 2; MSCCL's XML names no root and means rank 0"):
        exchange.write_plan(plan, "msccl")


def invoke(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_the_commands_take_and_make_xml(tmp_path):
    pytest.importorskip("pydantic")
    pytest.importorskip("yaml")
    ring = LIBRARY[0].parent / "ring_all_reduce.py"
    file, other = tmp_path / "ring.xml", tmp_path / "ring.json"
    made = invoke("compile", ring, "-n", 4, "--to", "msccl-xml", "-o", file)
    assert made.exit_code == 0, made.output
    assert invoke("compile", ring, "-n", 4, "-o", other).exit_code == 0
    assert '<algo name="ring_all_reduce"' in file.read_text()
    assert "1 plan verified" in " ".join(invoke("verify", file).output.split())
    assert "right" in invoke("run", file).output
    assert invoke("diff", file, other).exit_code == 0
    shown = invoke("show", other, "--format", "msccl-xml", "--target", "msccl")
    assert steps_of(shown.output) == steps_of(file.read_text())
    cost = invoke("cost", file, "--cluster", "dgx_h100", "--size", "1MiB,16MiB", "--explain")
    assert cost.exit_code == 0, cost.output
    assert "ring_all_reduce, 4 ranks on 1 nodes of dgx_h100" in " ".join(cost.output.split())
    assert "critical path:" in cost.output
    for arguments, text in [
        (("--to", "msccl-xml", "--target", "mscclpp"), "mscclpp reads mscclpp-json, not msccl-xml"),
        (("--target", "nccl"), "there is no target 'nccl'"),
        (("--to", "mscclpp-json"), "becomes send on rank 0, which mscclpp cannot run"),
    ]:
        with pytest.raises(MisuseError, match=text):
            raise invoke("compile", ring, *arguments).exception


def test_a_file_for_both_places_is_proved_in_both(tmp_path):
    out_of_place, in_place = exchange.read_msccl_plans(RACE_IN_PLACE)
    assert (out_of_place.in_place, in_place.in_place) == (False, True)
    assert out_of_place.verify().ok
    assert in_place.verify().failures[0].problem == "race"
    file = tmp_path / "swap.xml"
    file.write_text(RACE_IN_PLACE)
    result = CliRunner().invoke(app, ["plan", "verify", str(file)])
    assert result.exit_code == 1
    assert "swap, in place" in result.output
    assert "race, rank 0" in result.output


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("form", ["xml", "json", "text"])
def test_a_file_is_read_in_the_encoding_that_its_mark_says(tmp_path, encoding, form):
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2))
    texts = {
        "xml": exchange.write_plan(plan, "rccl"),
        "json": plan.to_json(),
        "text": plan.to_text(),
    }
    file = tmp_path / "plan"
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    file.write_bytes((mark + texts[form]).encode(encoding))
    assert exchange.read_plan(file).verify().ok


def test_a_file_that_is_no_text_is_named_with_its_byte(tmp_path):
    file = tmp_path / "plan.xml"
    file.write_bytes(b'<algo name="\xff"/>')
    with pytest.raises(MisuseError, match=r"plan\.xml is not text: byte 12 is no UTF-8"):
        exchange.read_plan(file)


def test_a_chunk_may_be_overwritten_once_it_was_sent_where_slots_hold_it(tmp_path):
    one_block = re.sub(
        r'recv="-1" chan="0">(\s*)(<step s="0" type="s".*)\n.*\n.*<tb id="1" send="-1" '
        r'recv="(\d)" chan="0">\n(.*)s="0" type="rrc"',
        r'recv="\3" chan="0">\1\2\n\4s="1" type="rrc"',
        RACE_IN_PLACE.replace('outofplace="1"', 'outofplace="0"'),
    )
    assert one_block.count("<tb") == 2
    (plan,) = exchange.read_msccl_plans(one_block)
    assert "Only with zero-copy" in plan.verify().failures[0].describe()
    assert plan.verify(zero_copy=False).ok
    file = tmp_path / "swap.xml"
    file.write_text(one_block)
    ended = invoke("verify", file)
    assert ended.exit_code == 0, ended.output
    assert "verified for runtimes whose slots hold messages" in ended.output
    # The same plan as a file of ours is for executors that may read where the data lies.
    ours = tmp_path / "swap.json"
    ours.write_text(plan.to_json())
    assert invoke("verify", ours).exit_code == 1


def test_different_orders_are_refused_or_marked(tmp_path):
    rows = ["plan orders version 1", "collective all_reduce ranks 3"]
    rows += ["protocol simple channels 1 in_place no", "chunks 1 input_blocks 1 output_blocks 1"]
    rows += ["bytes 0.."]
    for rank in range(3):
        after, before = (rank + 1) % 3, (rank + 2) % 3
        rows += [f"rank {rank}", f"  block 0 channel 0 send {after} recv {after}"]
        rows += ["    send input[0]", "    recv_reduce_copy input[0] -> output[0]"]
        rows += [f"  block 1 channel 0 send {before} recv {before}", "    send input[0]"]
        rows += ["    recv_reduce_copy output[0] -> output[0] after 0:2"]
    file = tmp_path / "orders.plan"
    file.write_text("\n".join(rows) + "\n")
    ended = invoke("verify", file)
    assert ended.exit_code == 1
    assert "different_results, rank 1" in ended.output
    ended = invoke("verify", file, "--allow-different-orders")
    assert ended.exit_code == 0, ended.output
    assert "ranks add in different orders: their results differ in the last bits" in ended.output


def ends_of_messages(xml):
    """Of each message, by both of its steps: the place it comes from, and that it goes to."""
    ends = {}
    algo = ElementTree.fromstring(xml)
    for gpu in algo:
        for block in gpu:
            for step in block:
                kind = step.get("type")
                place = {w: (step.get(f"{w}buf"), step.get(f"{w}off")) for w in ("src", "dst")}
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    way = (gpu.get("id"), block.get("send"), block.get("chan"))
                    own = place["src"] if kind in ("s", "rrs") else place["dst"]
                    peer = place["dst"] if kind in ("s", "rrs") else None
                    ends.setdefault(way, ([], []))[0].append((own, peer))
                if kind in ("r", "rcs", "rrc", "rrs", "rrcs"):
                    way = (block.get("recv"), gpu.get("id"), block.get("chan"))
                    own = place["src"] if kind == "rrs" else place["dst"]
                    peer = place["src"] if kind in ("r", "rcs") else None
                    ends.setdefault(way, ([], []))[1].append((own, peer))
    return ends


@pytest.mark.parametrize("collective", KNOWN)
def test_both_ends_of_a_message_name_the_same_places(collective):
    named = 0
    for algorithm in plans.algorithms(collective):
        if algorithm.why_not(plans.Placement(4)):
            continue
        xml = exchange.write_plan(algorithm.plan(plans.Placement(4)), "msccl")
        for sent, received in ends_of_messages(xml).values():
            for (source, target_there), (target, source_there) in zip(sent, received, strict=True):
                assert source_there in (None, source), algorithm.plan_name
                assert target_there in (None, target), algorithm.plan_name
                named += (source_there is not None) + (target_there is not None)
        assert exchange.read_msccl_xml(xml).verify().ok
    assert named > 0
