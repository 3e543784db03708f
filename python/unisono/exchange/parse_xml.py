"""MSCCL's XML as text: parsed by expat, which the standard library brings.

A file is data from anybody. Nothing that expands is taken: a document type, in which entities would
be declared, is refused at its first character, so no file can grow while it is read. Everything is
checked where it is read, and every fault names its line.
"""

from xml.parsers import expat

from unisono.errors import MisuseError
from unisono.exchange.schema import COLLECTIVES, OPERATIONS, PROTOCOLS, Algorithm, Block, Gpu, Step

__all__ = ["parse"]

_MAX_CHARACTERS = 256 << 20
_MAX_STEPS = 4 << 20
_MAX_RANKS = 1 << 16
_MAX_CHUNKS = 1 << 20
_MAX_BLOCKS = 4096
_MAX_MOVES = 1 << 24  # chunks that all steps move
_MAX_CHANNEL = 63
_MAX_BYTES = 1 << 62

_NAMES = {
    "algo": (
        "name proto nchannels nchunksperloop ngpus coll inplace outofplace minBytes maxBytes "
        "redop root nthreads nthreadblocks maxcount"
    ),
    "gpu": "id i_chunks o_chunks s_chunks",
    "tb": "id send recv chan",
    "step": "s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep",
}
_ATTRIBUTES = {element: set(names.split()) for element, names in _NAMES.items()}
_PARENTS = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb"}

Attributes = dict[str, str]


def parse(text: str) -> Algorithm:
    """What the file says; MisuseError if it is not such a file, naming the line."""
    if len(text) > _MAX_CHARACTERS:
        raise MisuseError(f"more than {_MAX_CHARACTERS} characters of XML")
    return _Parser().parse(text)


class _Parser:
    def __init__(self) -> None:
        self._algorithm: Algorithm | None = None
        self._gpu: Gpu | None = None
        self._block: Block | None = None
        self._open: list[str] = []
        self._steps = 0
        self._moves = 0
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.CharacterDataHandler = self._refuse_text
        self._parser = parser

    def parse(self, text: str) -> Algorithm:
        try:
            self._parser.Parse(text, True)
        except UnicodeEncodeError:
            raise MisuseError("characters that are no text") from None
        except expat.ExpatError as error:
            raise MisuseError(
                f"line {error.lineno}: no well-formed XML: {expat.ErrorString(error.code)}"
            ) from None
        assert self._algorithm is not None  # expat wants a root, and _start that it is algo
        return self._algorithm

    # Faults ---------------------------------------------------------------------------------------

    def _wrong(self, what: str) -> MisuseError:
        return MisuseError(f"line {self._parser.CurrentLineNumber}: {what}")

    def _refuse_doctype(self, *_: object) -> None:
        raise self._wrong("a document type; plans need none, and entities are not expanded")

    def _refuse_text(self, text: str) -> None:
        if text.strip():
            raise self._wrong(f"the text '{text.strip()[:40]}' between elements")

    def _number(self, element: str, values: Attributes, name: str, low: int, high: int,
                default: int | None = None) -> int:  # fmt: skip
        text = values.get(name)
        if text is None:
            if default is not None:
                return default
            raise self._wrong(f"<{element}> has no {name}")
        # As C reads numbers: digits and a sign. int() would take more.
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            raise self._wrong(f'{name}="{text[:40]}" of <{element}> is no whole number')
        value = int(text)
        if not low <= value <= high:
            raise self._wrong(f"{name}={value} of <{element}>; it is {low} to {high}")
        return value

    def _choice(self, element: str, values: Attributes, name: str, known: dict[str, str]) -> str:
        if name not in values:
            raise self._wrong(f"<{element}> has no {name}")
        if values[name] not in known:
            raise self._wrong(
                f'{name}="{values[name][:40]}" of <{element}>; there are {", ".join(known)}'
            )
        return known[values[name]]

    # Elements -------------------------------------------------------------------------------------

    def _start(self, element: str, values: Attributes) -> None:
        parent = self._open[-1] if self._open else ""
        if element not in _PARENTS:
            raise self._wrong(f"an element <{element[:40]}>; there are {', '.join(_PARENTS)}")
        if _PARENTS[element] != parent:
            place = f"inside <{parent}>" if parent else "as the root"
            raise self._wrong(f"<{element}> {place}; it belongs in <{_PARENTS[element] or 'no'}>")
        unknown = set(values) - _ATTRIBUTES[element]
        if unknown:
            raise self._wrong(f"<{element}> has an unknown attribute {min(unknown)[:40]}")
        self._open.append(element)
        getattr(self, f"_start_{element}")(values)

    def _end(self, element: str) -> None:
        self._open.pop()
        if element == "gpu" and self._gpu is not None:
            missing = set(range(len(self._gpu.blocks))) - set(self._gpu.blocks)
            if missing:
                raise self._wrong(f"thread block {min(missing)} is missing; they count from 0 on")
        if element == "algo" and self._algorithm is not None:
            missing = set(range(self._algorithm.ranks)) - set(self._algorithm.gpus)
            if missing:
                raise self._wrong(f"<gpu> {min(missing)} of {self._algorithm.ranks} is missing")
            self._check_channels(self._algorithm)

    def _check_channels(self, algorithm: Algorithm) -> None:
        blocks = (block for gpu in algorithm.gpus.values() for block in gpu.blocks.values())
        used = 1 + max((block.channel for block in blocks), default=0)
        if used != algorithm.channels:
            raise self._wrong(
                f"nchannels={algorithm.channels} of <algo>; its thread blocks use {used}"
            )

    def _start_algo(self, values: Attributes) -> None:
        ranks = self._number("algo", values, "ngpus", 1, _MAX_RANKS)
        in_place = self._number("algo", values, "inplace", 0, 1, 0) == 1
        # Without it, a file is for one of the two.
        out_of_place = self._number("algo", values, "outofplace", 0, 1, 0 if in_place else 1) == 1
        if not in_place and not out_of_place:
            raise self._wrong("inplace=0 and outofplace=0: the file serves no call")
        self._algorithm = Algorithm(
            name=values.get("name", "msccl"),
            protocol=self._choice("algo", {"proto": "Simple", **values}, "proto", PROTOCOLS),
            channels=self._number("algo", values, "nchannels", 1, _MAX_CHANNEL + 1),
            chunks=self._number("algo", values, "nchunksperloop", 1, _MAX_CHUNKS),
            ranks=ranks,
            collective=self._choice("algo", values, "coll", COLLECTIVES | {"sendrecv": "custom"}),
            in_place=in_place,
            out_of_place=out_of_place,
            min_bytes=self._number("algo", values, "minBytes", 0, _MAX_BYTES, 0),
            max_bytes=self._number("algo", values, "maxBytes", 0, _MAX_BYTES, 0),
            root=self._number("algo", values, "root", 0, ranks - 1, 0),
        )

    def _start_gpu(self, values: Attributes) -> None:
        assert self._algorithm is not None
        rank = self._number("gpu", values, "id", 0, self._algorithm.ranks - 1)
        if rank in self._algorithm.gpus:
            raise self._wrong(f"<gpu> {rank} is defined twice")
        chunks = [self._number("gpu", values, f"{which}_chunks", 0, _MAX_CHUNKS) for which in "ios"]
        self._gpu = Gpu(chunks[0], chunks[1], chunks[2])
        self._algorithm.gpus[rank] = self._gpu

    def _start_tb(self, values: Attributes) -> None:
        assert self._algorithm is not None
        assert self._gpu is not None
        number = self._number("tb", values, "id", 0, _MAX_BLOCKS - 1)
        if number in self._gpu.blocks:
            raise self._wrong(f"thread block {number} is defined twice")
        ranks = self._algorithm.ranks
        # A thread block without peers may have no channel.
        channel = self._number("tb", values, "chan", -1, self._algorithm.channels - 1)
        self._block = Block(
            send=self._number("tb", values, "send", -1, ranks - 1),
            recv=self._number("tb", values, "recv", -1, ranks - 1),
            channel=max(channel, 0),
            line=self._parser.CurrentLineNumber,
        )
        self._gpu.blocks[number] = self._block

    def _start_step(self, values: Attributes) -> None:
        assert self._block is not None
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise self._wrong(f"more than {_MAX_STEPS} steps")
        number = self._number("step", values, "s", 0, _MAX_STEPS)
        if number != len(self._block.steps):
            raise self._wrong(
                f"step s={number} where s={len(self._block.steps)} is next; they count from 0 on"
            )
        kind = values.get("type", "")
        if kind not in OPERATIONS and kind != "nop":
            raise self._wrong(
                f'type="{kind[:40]}" of <step>; there are {", ".join(OPERATIONS)}, nop'
            )
        block = self._number("step", values, "depid", -1, _MAX_BLOCKS - 1, -1)
        step = self._number("step", values, "deps", -1, _MAX_STEPS, -1)
        if (block < 0) != (step < 0):
            raise self._wrong(f"depid={block} with deps={step}; both name a step, or both are -1")
        is_awaited = self._number("step", values, "hasdep", 0, 1, 0) == 1
        count = self._number("step", values, "cnt", 0, _MAX_CHUNKS, 1)
        if count == 0 and kind != "nop":
            raise self._wrong(f"cnt=0 of a step {kind}; it moves 1 chunk or more")
        self._moves += count
        if self._moves > _MAX_MOVES:
            raise self._wrong(f"the steps move more than {_MAX_MOVES} chunks in all")
        self._block.steps.append(
            Step(
                kind=kind,
                source=self._place(values, "src"),
                target=self._place(values, "dst"),
                count=count,
                after=None if block < 0 else (block, step),
                is_awaited=is_awaited,
                line=self._parser.CurrentLineNumber,
            )
        )

    def _place(self, values: Attributes, which: str) -> tuple[str, int]:
        buffers = {"i": "i", "o": "o", "s": "s"}
        name = f"{which}buf"
        buffer = self._choice("step", values, name, buffers) if name in values else "i"
        return buffer, self._number("step", values, f"{which}off", -1, _MAX_CHUNKS, -1)
