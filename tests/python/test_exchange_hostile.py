"""Files for MSCCL that are wrong, by mistake or on purpose: each is refused with its line."""

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unisono import exchange, plans
from unisono.errors import MisuseError

QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

PLAN = plans.find_algorithm("bidirectional_ring_all_reduce").plan(plans.Placement(3))
XML = exchange.write_plan(PLAN, "rccl")


def step(kind="s", buffers="ii", offsets=(0, 0), count=1, after=(-1, -1), awaited=0):
    return (
        f'<step s="0" type="{kind}" srcbuf="{buffers[0]}" srcoff="{offsets[0]}" '
        f'dstbuf="{buffers[1]}" dstoff="{offsets[1]}" cnt="{count}" depid="{after[0]}" '
        f'deps="{after[1]}" hasdep="{awaited}"/>'
    )


def file(*steps, other="", header="", second=""):
    """Rank 0 sends to rank 1, which receives, unless steps say something else; step by line."""
    rows = [one.replace('s="0"', f's="{i}"', 1) for i, one in enumerate(steps)]
    return "\n".join(
        [
            '<algo name="a" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" '
            f'coll="broadcast" {header}>',
            '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1">',
            '<tb id="0" send="1" recv="-1" chan="0">', *rows, "</tb>", other, "</gpu>",
            '<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="1">',
            '<tb id="0" send="-1" recv="0" chan="0">', second or step("r", "io"), "</tb></gpu>",
            "</algo>",
        ]
    )  # fmt: skip


BOMB = """<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;">]>
<algo name="&e;"/>"""
OUTSIDE = '<!DOCTYPE algo SYSTEM "file:///etc/passwd"><algo/>'

CASES = {
    "billion laughs": (BOMB, "line 1: a document type; plans need none"),
    "a file from outside": (OUTSIDE, "line 1: a document type"),
    "no XML": ("<algo", "line 1: no well-formed XML"),
    "another element": (file(step()).replace("<gpu", "<cpu", 1), "line 2: an element <cpu>"),
    "a step in a rank": (
        file(step()).replace('<tb id="0" send="1" recv="-1" chan="0">', ""),
        "line 4: <step> inside <gpu>; it belongs in <tb>",
    ),
    "an unknown attribute": (file(step(), header='speed="9"'), "line 1: <algo> has an unknown"),
    "text": (file(step(), other="hello"), "the text 'hello' between elements"),
    "a number that is none": (
        file(step()).replace('cnt="1"', 'cnt="1e3"', 1),
        'line 4: cnt="1e3" of <step> is no whole number',
    ),
    "a huge count": (file(step(count=10**18)), "cnt=1000000000000000000 of <step>; it is 0 to"),
    "huge counts": (
        file(*[step(count=2**20)] * 17).replace('nchunksperloop="2"', f'nchunksperloop="{2**20}"'),
        "the steps move more than 16777216 chunks in all",
    ),
    "no chunk": (file(step(count=0)), "cnt=0 of a step s; it moves 1 chunk or more"),
    "a negative offset": (
        file(step(offsets=(-1, 0))),
        "line 4: srcoff=-1 with cnt=1 is outside of buffer i of rank 0, which has i_chunks=2",
    ),
    "a far negative offset": (file(step(offsets=(-5, 0))), "srcoff=-5 of <step>; it is -1 to"),
    "an offset beyond": (file(step(offsets=(1, 0), count=2)), "srcoff=1 with cnt=2 is outside"),
    "another type": (file(step("rrr")), 'type="rrr" of <step>; there are s, r, cpy'),
    "another buffer": (file(step(buffers="xi")), 'srcbuf="x" of <step>; there are i, o, s'),
    "a missing attribute": (
        file(step()).replace('ngpus="2"', ""), "line 1: <algo> has no ngpus",
    ),
    "a collective of none": (
        file(step()).replace("broadcast", "dance"), 'coll="dance" of <algo>; there are all',
    ),
    "a rank twice": (file(step()).replace('gpu id="1"', 'gpu id="0"'), "<gpu> 0 is defined twice"),
    "a missing rank": (file(step()).replace('ngpus="2"', 'ngpus="3"'), "<gpu> 2 of 3 is missing"),
    "a gap of thread blocks": (
        file(step()).replace('tb id="0"', 'tb id="1"', 1), "thread block 0 is missing",
    ),
    "a gap of steps": (
        file(step(), step()).replace('s="1"', 's="2"'), "step s=2 where s=1 is next",
    ),
    "half a wait": (file(step(after=(0, -1))), "depid=0 with deps=-1; both name a step"),
    "a wait for nobody": (
        file(step(after=(3, 0))), "line 4: waits for step 0 of thread block 3, which rank 0"
    ),
    "a wait for itself": (
        file(step(after=(0, 0))), "waits for step 0 of its own thread block: deadlock",
    ),
    "a cycle of waits": (
        file(
            step(after=(1, 0)),
            other='<tb id="1" send="-1" recv="-1" chan="0">'
            + step("cpy", "io", after=(2, 0), awaited=1)
            + '</tb><tb id="2" send="-1" recv="-1" chan="0">'
            + step("nop", after=(1, 0), awaited=1) + "</tb>",
        ),
        "deadlock:\n  line 4: rank 0, thread block 0, step 0 waits for step 0 of thread block 1\n"
        "  line 6: rank 0, thread block 1, step 0 waits for step 0 of thread block 2\n"
        "  line 6: rank 0, thread block 2, step 0 waits for step 0 of thread block 1",
    ),
    "a wait for a step that posts no flag": (
        file(step(after=(1, 0)), other='<tb id="1" send="-1" recv="-1" chan="0">'
             + step("cpy", "io") + "</tb>"),
        "line 4: waits for step 0 of thread block 1, which has hasdep=0 (line 6)",
    ),
    "input that the rank does not have": (
        file(step(offsets=(1, 0))).replace('i_chunks="2"', 'i_chunks="1"', 1),
        "line 4: srcoff=1 with cnt=1 is outside of buffer i of rank 0, which has i_chunks=1",
    ),
    "output that the rank does not have": (
        file(step(), second=step("r", "io", (0, 1))).replace(
            'gpu id="1" i_chunks="2" o_chunks="2"', 'gpu id="1" i_chunks="2" o_chunks="1"'
        ),
        "line 10: dstoff=1 with cnt=1 is outside of buffer o of rank 1, which has o_chunks=1",
    ),
    "scratch that the rank does not have": (
        file(step(), second=step("r", "is", (0, 1))),
        "line 10: dstoff=1 with cnt=1 is outside of buffer s of rank 1, which has s_chunks=1",
    ),
    "more chunks than the collective has": (
        file(step(offsets=(2, 0))).replace('i_chunks="2"', 'i_chunks="3"', 1),
        "line 4: srcoff=2 with cnt=1 is outside of buffer i of rank 0; in broadcast it has 2",
    ),
    "channels that nobody uses": (
        file(step()).replace('nchannels="1"', 'nchannels="3"'),
        "nchannels=3 of <algo>; its thread blocks use 1",
    ),
    "a message that nobody sends": (
        file(step("cpy", "io")),
        "deadlock:\n  line 10: rank 1, thread block 0, step 0 waits for a message of rank 0 on "
        "channel 0\n  rank 0, thread block 0 has ended",
    ),
    "peers that do not agree": (
        file(step(count=2)), "line 10: r with cnt=1 takes a message of 2 chunks from rank 0; both",
    ),
    "a send to nobody": (
        file(step()).replace('send="1"', 'send="-1"'), "s in a thread block that sends to nobody",
    ),
    "a send to itself": (
        file(step()).replace('send="1"', 'send="0"'), "thread block 0 of rank 0 sends to itself",
    ),
    "two thread blocks of one connection": (
        file(step(), second=step("r", "io") + '</tb><tb id="1" send="-1" recv="0" chan="0">'),
        "thread block 1 of rank 1 receives from rank 0 on channel 0, as thread block 0 does",
    ),
    "chunks that ranks do not divide": (
        file(step()).replace("broadcast", "allgather").replace('loop="2"', 'loop="3"'),
        "nchunksperloop=3 of a does not divide by its 2 ranks",
    ),
    "no call": (file(step(), header='inplace="0" outofplace="0"'), "the file serves no call"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_file_is_refused(name):
    text, message = CASES[name]
    start = time.process_time()
    with pytest.raises(MisuseError) as caught:
        exchange.read_msccl_xml(text)
    assert message in str(caught.value)
    assert time.process_time() - start < 5


def test_the_file_that_the_wrong_ones_come_from_is_right():
    assert exchange.read_msccl_xml(file(step(), step("cpy", "io"))).verify() is not None
    assert exchange.read_msccl_xml(XML).verify().ok


def survives(text):
    """Any text is a plan or refused, soon."""
    start = time.process_time()
    try:
        plan = exchange.read_msccl_xml(text)
    except MisuseError:
        return False
    finally:
        assert time.process_time() - start < 5
    plan.verify()
    return True


@QUICK
@given(st.text(max_size=60))
def test_any_text_is_refused(text):
    assert not survives(text)


@QUICK
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_any_edit_of_a_file_is_a_plan_or_refused(seed, edits):
    rng = random.Random(seed)
    lines = XML.splitlines()
    for _ in range(edits):
        at = rng.randrange(len(lines))
        quotes = lines[at].split('"')
        match rng.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _ if len(quotes) > 2:
                where = rng.randrange(1, len(quotes) - 1, 2)
                quotes[where] = rng.choice(
                    ["-1", "0", "1", "2", "63", "99999999999999999999", "", "i", "o", "s", "r",
                     "re", "rrcs", "nop", "cpy", "&lt;", "٣", "1_0", "+1", " 1"]
                )  # fmt: skip
                lines[at] = '"'.join(quotes)
        if len(lines) < 2:
            break
    survives("\n".join(lines))


@QUICK
@given(st.binary(max_size=12), st.integers(0, len(XML)), st.integers(0, 40))
def test_any_damage_to_the_text_is_refused_or_does_not_matter(junk, at, cut):
    survives(XML[:at] + junk.decode("latin-1") + XML[at + cut :])
