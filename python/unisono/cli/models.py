"""Which simulator a cluster's name or file means: the event simulator, or NCCL's model.

Some names mean both, a machine of NCCL's model and a cluster of the event simulator. The
measurements decide then, unless an option is given that only the event simulator has.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from unisono.cli.simulation import load_simulator
from unisono.errors import MisuseError

NCCL = "nccl"
_NO_MESSAGES = "NCCL's model is a formula, without messages to show"
# Each table says why another option cannot honour an option of `unisono simulate`, by parameter.
NOT_OF_NCCL = {
    "channels": "NCCL's model takes as many as NCCL finds and fills",
    "model": "NCCL's model is a formula, without a network that is shared",
    "timeline": _NO_MESSAGES,
    "use": _NO_MESSAGES,
    "noise": "the interval says how far off a time may be",
    "goal": "NCCL's model is a formula, without a schedule to write",
    "loggops": "it has the costs of a GOAL file",
    "skip": "it leaves out measurements of --against",
    "sources": "it lists the numbers of the event simulator's clusters",
}
# The same for a workload on NCCL's model.
NOT_OF_NCCLS_WORKLOADS = NOT_OF_NCCL | {
    "algorithm": "NCCL chooses for each call of a workload",
    "protocol": "NCCL chooses for each call of a workload",
    "size": "the workload says how large its calls are",
    "nodes": "its ranks fill one node after another",
    "explain": "NCCL's model has no messages for a critical path",
}
_SAID = "the measurements say what ran"
_ONE = "it is of one simulation, and every measurement is one"
NOT_WITH_MEASUREMENTS = {
    "algorithm": _SAID, "protocol": _SAID, "channels": _SAID, "size": _SAID, "nodes": _SAID,
    "explain": _ONE, "timeline": _ONE, "use": _ONE, "goal": _ONE,
    "noise": "measurements have their own", "workload": "it is simulated without measurements",
}  # fmt: skip


def takes_nccls_model(
    cluster: str, implementation: str, files: Sequence[Path], options: Mapping[str, object]
) -> bool:
    """Whether measurements are held against NCCL's model rather than the event simulator.

    Args:
        cluster: What --cluster says.
        implementation: Whose measurements are meant.
        files: The measurements.
        options: Options of the event simulator alone, with their values; those that are given are
            true.

    Raises:
        MisuseError: Measurements, cluster and options do not go together.
    """
    load_simulator()
    from unisono.simulate import nccl
    from unisono.simulate.files import read_table

    is_machine, is_cluster = _meanings(cluster)
    given = [name for name, value in options.items() if value]
    logs = [str(file) for file in files if nccl.is_nccl_tests(read_table(file))]
    if logs and not is_machine:
        # This raises an error that lists the machines.
        nccl.find_machine(cluster)
    takes = is_machine and (
        not is_cluster or bool(logs) or (implementation == NCCL and not given)
    )  # fmt: skip
    if takes and given:
        why = f"{logs[0]} is nccl-tests' output" if logs else f"{cluster} is a machine of NCCL's"
        raise MisuseError(
            f"{why}, which NCCL's model takes; leave out {', '.join(given)}, which the event "
            "simulator has alone"
        )
    return takes


def is_machine(cluster: str) -> bool:
    """Whether NCCL's model knows what --cluster says."""
    return _meanings(cluster)[0]


def refuse_options(other: str, reasons: Mapping[str, str], given: Mapping[str, object]) -> None:
    """Refuses the options that another one cannot honour.

    Args:
        other: The other option, for the message.
        reasons: Why it cannot honour an option, by the option's parameter.
        given: The values of all parameters.

    Raises:
        MisuseError: One of them is given.
    """
    for name, why in reasons.items():
        if given.get(name):
            raise MisuseError(f"--{name} cannot go with {other}: {why}; leave one of them out")


def _meanings(cluster: str) -> tuple[bool, bool]:
    """Whether it means a machine of NCCL's model, and whether a cluster of the event simulator."""
    from unisono.simulate import builtin_clusters, nccl
    from unisono.simulate.files import format_of, read

    if Path(cluster).suffix in (".yaml", ".yml"):
        is_machine = format_of(read(Path(cluster))) == 2
        return is_machine, not is_machine
    return cluster in nccl.machine_names(), cluster in builtin_clusters()
