"""Workload files: the YAML of `unisono simulate --workload`, and its schema.

Either `programs` says what ranks do, or `training` names a model and a layout.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from unisono.errors import MisuseError
from unisono.simulate import files
from unisono.simulate.kernels import Device, find_device
from unisono.simulate.layout import Layout
from unisono.simulate.models import Model
from unisono.simulate.quantities import plain_reader
from unisono.simulate.training import training_step
from unisono.simulate.workload import AUTOMATIC, Call, Task, TaskList, Workload

_MAX_RANKS = 1 << 20
_MAX_TASKS = 1_000_000

Duration = Annotated[float, BeforeValidator(plain_reader("duration", '"1.5 ms"'))]
Size = Annotated[int, BeforeValidator(lambda text: round(plain_reader("size", '"64 MiB"')(text)))]
Rate = Annotated[float, BeforeValidator(plain_reader("bandwidth", '"1.6 TB/s"'))]
Speed = Annotated[float, BeforeValidator(plain_reader("speed", '"300 TFLOP/s"'))]


class _Common(files.Part):
    """What every step may have."""

    name: str = Field("", max_length=256)
    stream: str = Field("", max_length=64)
    after: list[str] = Field(default_factory=list, max_length=1024)


class _Compute(_Common):
    time: Duration


class _Collective(_Common):
    size: Size
    over: str
    algorithm: str = AUTOMATIC
    protocol: Literal["simple", "ll", "ll128"] = "simple"
    channels: int = Field(0, ge=0, le=1024)
    type: str = "float32"
    root: int = Field(0, ge=0)


class _Send(_Common):
    size: Size
    to: int | str
    over: str = ""
    tag: int = Field(0, ge=0, lt=1 << 30)


class _Recv(_Common):
    size: Size
    source: int | str = Field(alias="from")
    over: str = ""
    tag: int = Field(0, ge=0, lt=1 << 30)


class _Step(files.Part):
    """Exactly one of these; `repeat` stands for its steps so many times."""

    compute: _Compute | None = None
    all_reduce: _Collective | None = None
    all_gather: _Collective | None = None
    reduce_scatter: _Collective | None = None
    broadcast: _Collective | None = None
    reduce: _Collective | None = None
    gather: _Collective | None = None
    scatter: _Collective | None = None
    all_to_all: _Collective | None = None
    barrier: _Collective | None = None
    send: _Send | None = None
    recv: _Recv | None = None
    repeat: "_Repeat | None" = None

    @model_validator(mode="after")
    def _is_one(self) -> "_Step":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a step is one of {', '.join(type(self).model_fields)}, not "
                f"{' and '.join(given) or 'nothing'}"
            )
        return self


class _Repeat(files.Part):
    count: int = Field(ge=1, le=100_000)
    steps: list[_Step]


class _Communicator(files.Part):
    """Groups of ranks: `size` ranks each, `stride` apart; or as listed."""

    size: int | None = Field(None, ge=1)
    stride: int = Field(1, ge=1)
    groups: list[list[int]] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "_Communicator":
        if (self.size is None) == (self.groups is None):
            raise ValueError("a communicator has either size (and stride) or groups")
        return self


class _Program(files.Part):
    ranks: str | list[int] = "all"
    steps: list[_Step]


class _Device(files.Part):
    speed: Speed
    memory: Rate = 0.0
    peak: Speed = 0.0
    capacity: Size = 0


class _Model(files.Part):
    """A transformer's dimensions; `Model` says what they mean."""

    name: str = Field("model", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    layers: int = Field(ge=1, le=10_000)
    hidden: int = Field(ge=1, le=1 << 20)
    heads: int = Field(ge=1)
    kv_heads: int = Field(0, ge=0)
    ffn: int = Field(0, ge=0, le=1 << 24)
    vocabulary: int = Field(ge=1)
    sequence: int = Field(ge=1)
    mlp: Literal["gelu", "swiglu"] = "gelu"
    biases: bool = True
    positions: Literal["learned", "rotary"] = "learned"
    tied: bool = True
    experts: int = Field(0, ge=0)
    experts_per_token: int = Field(2, ge=1)


class ModelFile(_Model):
    """A model file, format 1: the dimensions of a transformer."""

    format: Literal[1]


class _Layout(files.Part):
    tensor: int = 1
    context: int = 1
    shard: int = 1
    replicate: int = 1
    pipeline: int = 1
    virtual: int = 1
    expert: int = 1


class _Training(files.Part):
    # Tagged, so that a fault of the one is not told as one of both.
    model: Annotated[
        Annotated[str, Tag("name")] | Annotated[_Model, Tag("dimensions")],
        Discriminator(lambda value: "dimensions" if isinstance(value, dict) else "name"),
    ]
    layout: _Layout
    device: Annotated[
        Annotated[str, Tag("name")] | Annotated[_Device, Tag("speeds")],
        Discriminator(lambda value: "speeds" if isinstance(value, dict) else "name"),
    ]
    global_batch_tokens: int = Field(ge=1)
    micro_batch: int = 1
    gather: Literal["layer", "matrix"] = "layer"
    prefetch: int = 1
    recompute: Literal["none", "selective", "full"] | bool = True
    optimizer: Literal["replicated", "sharded"] = "replicated"
    reduce_bucket: Size = 0
    algorithms: dict[str, str] = Field(default_factory=dict)
    protocol: Literal["simple", "ll", "ll128"] = "simple"
    channels: int = 0


class WorkloadFile(files.Part):
    """A workload file, format 1; docs/how-to/workloads.md says what its members mean."""

    format: Literal[1]
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    iterations: int = Field(1, ge=1, le=1_000_000)
    implementation: Literal["unisono", "nccl"] = "unisono"
    ranks: int | None = Field(None, ge=1, le=_MAX_RANKS)
    communicators: dict[str, _Communicator] = Field(default_factory=dict)
    programs: list[_Program] = Field(default_factory=list)
    training: _Training | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "WorkloadFile":
        if (self.training is None) == (not self.programs):
            raise ValueError("a workload has either programs or training")
        if self.programs and self.ranks is None:
            raise ValueError("a workload with programs says how many ranks it has")
        if self.training and (self.ranks is not None or self.communicators):
            raise ValueError("with training, ranks and communicators follow from its layout")
        return self


def parse_workload(text: str, where: str = "workload") -> Workload:
    """The workload that a YAML text describes.

    Raises:
        MisuseError: It is no such text; the message names the member and what would be right.
    """
    file = files.parse(WorkloadFile, text, where)
    try:
        workload = _training(file, file.training) if file.training else _programs(file)
    except MisuseError as error:
        raise MisuseError(f"{where}: {error}") from None
    workload.implementation = file.implementation
    return workload


def load_model(path: Path) -> Model:
    """The model of a YAML file.

    Raises:
        MisuseError: There is no such file, or it is wrong.
    """
    file = files.parse(ModelFile, files.read(path), str(path))
    try:
        return Model(**file.model_dump(exclude={"format"}))
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from None


def load_workload_file(path: Path) -> Workload:
    """The workload of a YAML file."""
    return parse_workload(files.read(path), str(path))


def _training(file: WorkloadFile, training: _Training) -> Workload:
    given = training.device
    device = (
        find_device(given)
        if isinstance(given, str)
        else Device(given.speed, given.memory, given.peak, given.capacity / 1e9)
    )
    named = training.model
    model = named if isinstance(named, str) else Model(**named.model_dump())
    layout = Layout(**training.layout.model_dump())
    options = training.model_dump(exclude={"model", "layout", "device", "reduce_bucket"})
    workload = training_step(
        model, layout, device, reduce_bucket_bytes=training.reduce_bucket, **options
    )
    workload.name = file.name
    workload.iterations = file.iterations
    return workload


def _programs(file: WorkloadFile) -> Workload:
    ranks = file.ranks or 1
    workload = Workload(file.name, ranks, iterations=file.iterations)
    for name, one in file.communicators.items():
        workload.communicators[name] = one.groups or _strided(name, one, ranks)
    for number, program in enumerate(file.programs):
        tasks = TaskList(_ranks(program.ranks, ranks))
        names: dict[str, int] = {}
        for step in _unrolled(program.steps):
            if len(tasks.tasks) == _MAX_TASKS:
                raise MisuseError(f"programs.{number} has more than {_MAX_TASKS:,} steps")
            task = _task(step, names, f"programs.{number}, step {len(tasks.tasks)}")
            names[task.name] = tasks.add(task)
        workload.lists.append(tasks)
    return workload


def _strided(name: str, one: _Communicator, ranks: int) -> list[list[int]]:
    size, stride = one.size or 1, one.stride
    if ranks % (size * stride):
        raise MisuseError(
            f"communicators.{name}: {ranks} ranks do not divide into groups of {size} that are "
            f"{stride} apart; size x stride must divide them"
        )
    return [
        [first + offset + i * stride for i in range(size)]
        for first in range(0, ranks, size * stride)
        for offset in range(stride)
    ]


def _ranks(text: str | list[int], ranks: int) -> list[int]:
    if isinstance(text, list):
        return text
    if text == "all":
        return list(range(ranks))
    first, separator, last = text.partition("..")
    if not separator or not first.isdigit() or not last.isdigit() or int(last) >= ranks:
        raise MisuseError(f"ranks is '{text}'; write all, 0..{ranks - 1} or a list such as [0, 2]")
    return list(range(int(first), int(last) + 1))


def _unrolled(steps: list[_Step]) -> Iterator[_Step]:
    for step in steps:
        if step.repeat is None:
            yield step
            continue
        for _ in range(step.repeat.count):
            yield from _unrolled(step.repeat.steps)


def _task(step: _Step, names: dict[str, int], where: str) -> Task:
    kind, part = next(
        (name, getattr(step, name))
        for name in type(step).model_fields
        if getattr(step, name) is not None
    )
    for name in part.after:
        if name not in names:
            raise MisuseError(
                f"{where}: it is after '{name}', but no step before it in this program has that "
                "name"
            )
    after = tuple(names[name] for name in part.after)
    if isinstance(part, _Compute):
        stream = part.stream or "compute"
        return Task("compute", part.name or kind, stream, after, duration_ns=part.time)
    if isinstance(part, _Collective):
        call = Call(
            kind, part.size, part.algorithm, part.protocol, part.channels, part.type, part.root
        )
        stream = part.stream or part.over
        name = part.name or kind
        return Task("collective", name, stream, after, call=call, communicator=part.over)
    is_send = isinstance(part, _Send)
    peer = _peer(part.to if is_send else part.source, part.over, where)
    return Task(
        "send" if is_send else "recv", part.name or kind, part.stream or kind, after,
        communicator=part.over, peer=peer, size_bytes=part.size, tag=part.tag,
    )  # fmt: skip


def _peer(text: int | str, over: str, where: str) -> int:
    """A rank; or, over a communicator, +1 or -1: places from this rank's."""
    if isinstance(text, int) and not over:
        return text
    if isinstance(text, str) and over and text[:1] in "+-" and text[1:].isdigit():
        return int(text)
    raise MisuseError(
        f'{where}: the other rank is {text!r}; write a rank, or over a communicator "+1" or "-1"'
    )


def schema() -> dict[str, Any]:
    """The JSON schema of workload files."""
    return WorkloadFile.model_json_schema()
