"""The search for the layouts whose steps are shortest.

All layouts that divide model, batch and GPUs are tried. One that does not fit the memory is left
out. One whose kernels and bubble alone take longer than the worst of the best found so far is left
out before its communication is predicted. The best by the closed form of the schedule run through
the schedule itself. Layouts that differ in the chunks of a stage alone count as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unisono.errors import MisuseError
from unisono.simulate import nccl
from unisono.simulate.kernels import Device
from unisono.simulate.layout import KINDS, Layout
from unisono.simulate.models import Model
from unisono.simulate.plan_training.network import Network
from unisono.simulate.plan_training.step import Question, Step, estimate_step, layer_passes
from unisono.simulate.schedule import check_batches, split_layers
from unisono.simulate.training_memory import check_memory, memory_of
from unisono.simulate.training_options import Options, Recompute

# The largest micro-batch, context, and chunks of a stage that are tried.
_MICRO_BATCHES = (1, 2, 4, 8)
_CONTEXTS = (1, 2, 4, 8, 16)
_CHUNKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
# "selective" is not tried: with fused attention it equals "none".
_RECOMPUTES: tuple[Recompute, ...] = ("none", "full")
# A job may fix these.
FIXABLE = ("tensor", "pipeline", "virtual", "context", "expert", "shard", "micro_batch")
# So many times as many layouts as asked for run through the schedule.
_FINALISTS = 3
# 80 % of the published steps of studies/simulator/published_steps.yaml, fitted or left out, are
# predicted within this factor (studies/results/training_steps.txt).
KERNELS_OFF = 1.15


@dataclass(frozen=True)
class Job:
    """What is to be planned.

    Attributes:
        model: What is trained.
        gpus: How many there are.
        tokens: Of a whole step.
        device: What each GPU is.
        machine: NCCL's model of the cluster.
        overlap: See `Question`.
        gradient_bytes: See `Options`.
        fixed: Numbers of `FIXABLE` that are not searched, by name.
    """

    model: Model
    gpus: int
    tokens: int
    device: Device
    machine: nccl.MachineFile
    overlap: bool = True
    gradient_bytes: int = 4
    fixed: Mapping[str, int] = field(default_factory=dict)

    def choices(self, name: str, searched: Sequence[int]) -> Sequence[int]:
        """What may be tried for one of `FIXABLE`."""
        return (self.fixed[name],) if name in self.fixed else searched


@dataclass(frozen=True)
class Plan:
    """A layout, and its step with the ends of its interval.

    The interval has communication at the ends of NCCL's intervals, and kernels faster and slower by
    the factor that holds 80 % of published steps.
    """

    layout: Layout
    how: Options
    step: Step
    low: Step
    high: Step


@dataclass
class Search:
    """What was found, and what was left out.

    Attributes:
        plans: The shortest steps first.
        tried: Layouts that divide model, batch and GPUs.
        too_large: Those of them that do not fit the memory.
        pruned: Those of them whose kernels alone take too long.
        nearest: Why the layout that needs least memory does not fit, if none does.
    """

    plans: list[Plan] = field(default_factory=list)
    tried: int = 0
    too_large: int = 0
    pruned: int = 0
    nearest: str = ""


def plan_training(job: Job, count: int = 10) -> Search:
    """The `count` layouts whose steps are shortest.

    Raises:
        MisuseError: No layout divides the job, none fits the memory, or the job is wrong.
    """
    Options(gradient_bytes=job.gradient_bytes).check()
    for name, value in job.fixed.items():
        if name not in FIXABLE or value < 1:
            raise MisuseError(
                f"'{name}={value}' fixes nothing; fix {', '.join(FIXABLE)}, each to 1 or more"
            )
    network = Network(job.machine)
    search = Search()
    found: dict[tuple[Layout, int, str], tuple[float, Layout, Options]] = {}
    smallest: tuple[float, Layout, Options, int] | None = None
    bound = float("inf")
    capacity = job.device.memory_gb * 1e9
    for layout, how, batches in _layouts(job, network.local):
        search.tried += 1
        memory = memory_of(job.model, layout, how, batches).total
        if capacity and memory > capacity:
            search.too_large += 1
            if smallest is None or memory < smallest[0]:
                smallest = (memory, layout, how, batches)
            continue
        asked = Question(job.model, layout, job.device, how, network, job.overlap)
        if _least_s(asked, batches) > bound:
            search.pruned += 1
            continue
        step = estimate_step(
            job.model, layout, job.device, how, network, job.tokens, overlap=job.overlap,
            is_quick=True,
        )  # fmt: skip
        key = (replace(layout, virtual=1), how.micro_batch, how.recomputes)
        if key not in found or step.time_s < found[key][0]:
            found[key] = (step.time_s, layout, how)
        if len(found) >= 4 * _FINALISTS * count:
            best = sorted(found.items(), key=lambda one: one[1][0])[: _FINALISTS * count]
            found, bound = dict(best), best[-1][1][0]
    if not found:
        _refuse(job, smallest)
    finalists = sorted(found.values(), key=lambda one: one[0])[: _FINALISTS * count]
    plans = [_plan(job, network, layout, how) for _, layout, how in finalists]
    search.plans = sorted(plans, key=lambda plan: plan.step.time_s)[:count]
    ends = (Network(job.machine, "low"), Network(job.machine, "high"))
    search.plans = [_with_interval(job, ends, plan) for plan in search.plans]
    return search


def question_of(job: Job, plan: Plan) -> Question:
    """What the time of a plan's step depends on."""
    return Question(job.model, plan.layout, job.device, plan.how, Network(job.machine), job.overlap)


def _layouts(job: Job, local: int) -> Iterator[tuple[Layout, Options, int]]:
    """All that divide the job, with their micro-batches a rank."""
    model, sequences = job.model, job.tokens // job.model.sequence
    if job.tokens % model.sequence:
        raise MisuseError(
            f"a step has {job.tokens} tokens; it must be a multiple of the sequence, "
            f"{model.sequence}"
        )
    heads = model.kv_heads or model.heads
    tensors = [t for t in range(1, local + 1) if local % t == 0 and heads % t == 0]
    for tensor in job.choices("tensor", tensors):
        for context in job.choices("context", _CONTEXTS):
            if job.gpus % (tensor * context) or model.sequence % (2 * context) or heads % tensor:
                continue
            left = job.gpus // tensor // context
            for pipeline in job.choices("pipeline", _divisors(left)):
                if left % pipeline or pipeline > model.layers + 2 or sequences % (left // pipeline):
                    continue
                yield from _of_pipeline(job, tensor, context, pipeline, left // pipeline)


def _of_pipeline(
    job: Job, tensor: int, context: int, pipeline: int, data: int
) -> Iterator[tuple[Layout, Options, int]]:
    model = job.model
    each = job.tokens // model.sequence // data
    experts = _divisors(model.experts) if model.experts else [1]
    shards = (
        [1] if pipeline > 1 else sorted({1, data, *(s for s in (32, 64, 128) if data % s == 0)})
    )
    for expert in job.choices("expert", experts):
        if (context * data) % expert or (expert > 1 and model.experts % expert):
            continue
        for shard in job.choices("shard", shards):
            if data % shard:
                continue
            for virtual in job.choices("virtual", _CHUNKS if pipeline > 1 else (1,)):
                for micro_batch in job.choices("micro_batch", _MICRO_BATCHES):
                    if each % micro_batch:
                        continue
                    batches = each // micro_batch
                    layout = Layout(
                        tensor, shard, data // shard, pipeline, expert, context, virtual
                    )
                    if not _divides(model, layout, batches):
                        continue
                    for recompute in _RECOMPUTES:
                        how = Options(
                            micro_batch=micro_batch, recompute=recompute, optimizer="sharded",
                            gradient_bytes=job.gradient_bytes,
                        )  # fmt: skip
                        yield layout, how, batches


def _divides(model: Model, layout: Layout, batches: int) -> bool:
    try:
        layout.check()
        split_layers(model.layers, layout.pipeline * layout.virtual)
        check_batches(layout.pipeline, layout.virtual, batches)
    except MisuseError:
        return False
    return True


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _least_s(asked: Question, batches: int) -> float:
    """Less than any step of this layout takes: kernels and bubble, without communication."""
    layout = asked.layout
    layers = asked.model.layers / layout.pipeline
    passes = layer_passes(asked)
    own = layers * sum(one.compute for one in passes)
    return own * (batches + (layout.pipeline - 1) / layout.virtual) / 1e9


def _plan(job: Job, network: Network, layout: Layout, how: Options) -> Plan:
    step = estimate_step(
        job.model, layout, job.device, how, network, job.tokens, overlap=job.overlap
    )
    return Plan(layout, how, step, step, step)


def _with_interval(job: Job, ends: tuple[Network, Network], plan: Plan) -> Plan:
    low, high = (
        estimate_step(
            job.model, plan.layout, _scaled(job.device, factor), plan.how, network, job.tokens,
            overlap=job.overlap,
        )
        for network, factor in zip(ends, (KERNELS_OFF, 1 / KERNELS_OFF), strict=True)
    )  # fmt: skip
    return replace(plan, low=low, high=high)


def _scaled(device: Device, factor: float) -> Device:
    """The device with faster kernels; its peak stays what MFU refers to."""
    return replace(
        device, tflops=device.tflops * factor, memory_gb_s=device.memory_gb_s * factor,
        attention=device.attention * factor, attention_backward=device.attention_backward * factor,
    )  # fmt: skip


def _fixed(job: Job) -> str:
    """What was fixed, in words."""
    named = ", ".join(f"{name} {value}" for name, value in job.fixed.items())
    return f" with {named}" if named else ""


def _refuse(job: Job, smallest: tuple[float, Layout, Options, int] | None) -> None:
    """Says why there is no plan.

    Raises:
        MisuseError: Always.
    """
    if smallest is None:
        raise MisuseError(
            f"no layout divides {job.gpus} GPUs and {job.tokens // job.model.sequence} sequences "
            f"of {job.model.sequence} tokens{_fixed(job)}; take a batch that the GPUs divide"
        )
    _, layout, how, batches = smallest
    named = ", ".join(
        f"{name} {getattr(layout, name)}" for name in KINDS if getattr(layout, name) > 1
    )
    try:
        check_memory(job.model, layout, how, batches, job.device)
    except MisuseError as error:
        raise MisuseError(
            f"no layout fits {job.gpus} GPUs; the one that needs least ({named or 'one rank'}, "
            f"micro_batch {how.micro_batch}, recompute {how.recomputes}): {error}"
        ) from None
