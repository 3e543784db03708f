"""What the loaders of MSCCL's XML ask of a file, restated from what they do with it.

microsoft/msccl, Azure's executor and RCCL read a file with one loader that grew apart. They keep
what one rank does in arrays of fixed size, most of which they don't check.
"""

from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_KINDS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
_ONE_BLOCK = {"allgather": "i", "reduce_scatter": "o", "reducescatter": "o"}


@dataclass(frozen=True)
class Loader:
    """A loader's sizes.

    Attributes:
        steps: Of a thread block.
        blocks: Thread blocks.
        collectives: That it knows.
        is_first: microsoft/msccl: it looks at the sizes of buffers and at the sizes of calls.
    """

    steps: int
    blocks: int
    collectives: tuple[str, ...]
    is_first: bool = False


_COMMON = ("allreduce", "allgather", "alltoall", "broadcast", "reduce")
_LATER = (*_COMMON, "reducescatter", "gather", "scatter")
LOADERS = {
    "msccl": Loader(256, 216, (*_COMMON, "reduce_scatter", "custom"), is_first=True),
    "executor-nccl": Loader(64, 1024, _LATER),
    "rccl": Loader(64, 64, _LATER),
}


def load(text: str, loader: Loader) -> list[list[list[int]]]:
    """By rank and thread block, how many reductions each row of them joins.

    Raises:
        AssertionError: A loader would refuse the file, or write beyond what it keeps.
    """
    algo = ElementTree.fromstring(text)
    for element in algo.iter():
        assert len(element.attrib) <= 16
        assert all(len(value) < 255 for value in element.attrib.values())
    assert algo.get("proto") in ("Simple", "LL", "LL128")
    assert algo.get("coll") in loader.collectives
    assert len(algo) <= 1024
    assert len(algo) == int(algo.get("ngpus", ""))
    _check_sizes(algo, loader)
    return [_load_rank(algo, gpu, loader) for gpu in algo]


def _check_sizes(algo: Element, loader: Loader) -> None:
    loop = int(algo.get("nchunksperloop", ""))
    if not loader.is_first:
        assert algo.get("maxBytes") is not None
        assert algo.get("outofplace") is not None
        if algo.get("coll") in ("gather", "scatter"):  # the size of a call is that of one block
            most = max(
                int(gpu.get(which, "")) for gpu in algo for which in ("i_chunks", "o_chunks")
            )
            assert loop * len(algo) == most
        return
    assert 0 <= int(algo.get("minBytes", "0")) <= int(algo.get("maxBytes", str(128 << 20)))
    for gpu in algo:
        for which in "io":
            chunks = int(gpu.get(f"{which}_chunks", ""))
            one_block = _ONE_BLOCK.get(algo.get("coll", "")) == which
            assert chunks in (0, loop // len(algo) if one_block else loop)


def _load_rank(algo: Element, gpu: Element, loader: Loader) -> list[list[int]]:
    # The closing tag of the file needs a place, too.
    assert 1 + len(algo) + len(gpu) + sum(len(block) for block in gpu) < 4096
    assert [int(block.get("id", "")) for block in gpu] == list(range(len(gpu)))
    assert len(gpu) <= loader.blocks
    peers: dict[tuple[str, str], int] = {}
    for block in gpu:
        assert 0 <= int(block.get("chan", "")) < 32
        assert gpu.get("id") not in (block.get("send"), block.get("recv"))
        for way in ("send", "recv"):
            if block.get(way) != "-1":
                key = (way, block.get("chan", ""))
                peers[key] = peers.get(key, 0) + 1
                assert peers[key] <= 32
    return [_load_block(gpu, block, loader) for block in gpu]


def _load_block(gpu: Element, block: Element, loader: Loader) -> list[int]:
    rows: list[int] = []
    last: tuple[str, ...] = ()  # of a reduction that another may join
    pending = False  # a wait whose step is to come
    reductions = 0
    for number, step in enumerate(block):
        kind = step.get("type", "")
        assert int(step.get("s", "")) == number < loader.steps
        assert kind in _KINDS
        waits = step.get("depid") != "-1"
        if waits:
            _check_wait(gpu, step)
        if kind == "nop":
            pending = pending or waits
            continue
        assert 0 <= int(step.get("cnt", "")) < 72
        assert "s" not in kind or block.get("send") != "-1"
        assert kind[0] != "r" or kind == "re" or block.get("recv") != "-1"
        for which in ("src", "dst"):
            chunks = int(gpu.get(f"{step.get(f'{which}buf')}_chunks", ""))
            assert int(step.get(f"{which}off", "")) < min(chunks, 1 << 15)
        place = tuple(step.get(name, "") for name in ("dstbuf", "dstoff", "srcbuf"))
        joins = kind == "re" and place == last and not waits
        # Of waits that stand alone, the last is the step's own.
        assert joins or waits or not pending
        pending = False
        last = ()
        if kind == "re":
            reductions += 1
            if joins:
                rows[-1] += 1
            else:
                rows.append(1)
            # Counted from the thread block's beginning, whatever the row.
            if step.get("hasdep") == "0" and reductions != 16:
                last = place
    assert all(row <= 16 for row in rows)
    return rows


def _check_wait(gpu: Element, step: Element) -> None:
    awaited = int(step.get("depid", ""))
    assert awaited < 128  # a signed byte
    other = gpu[awaited][int(step.get("deps", ""))]
    assert other.get("type") != "nop"
    assert other.get("hasdep") == "1"
