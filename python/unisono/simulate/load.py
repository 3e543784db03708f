"""Workloads from whatever file holds one."""

import json
from pathlib import Path

from unisono.errors import MisuseError
from unisono.extras import missing_extra
from unisono.files import read_start, read_text
from unisono.simulate.files import starts_json
from unisono.simulate.flight_recorder import load_flight_recorder
from unisono.simulate.records import load_records
from unisono.simulate.workload import Workload
from unisono.simulate.workload_file import load_workload_file

_MAX_GROUPS_BYTES = 16 << 20
_CHAKRA = (".et", ".et.gz")


def load_workload(path: str | Path) -> Workload:
    """A workload file, or a folder of traces with one file a rank.

    A folder holds Chakra traces (*.et; or their JSON; `groups.json` says which ranks a process
    group has), PyTorch Flight Recorder dumps, or our own records.

    Raises:
        MisuseError: It holds none of these, or what it holds is wrong.
    """
    path = Path(path)
    if not path.is_dir():
        if path.name.endswith(_CHAKRA):
            raise MisuseError(
                f"{path} is one rank's trace; give the folder that holds those of all ranks alone"
            )
        return load_workload_file(path)
    files = sorted(one for one in path.iterdir() if one.is_file() and one.name != "groups.json")
    if not files:
        raise MisuseError(f"{path} is a folder without files")
    name = path.resolve().name
    workload = _of_traces(path, files, name)
    if not any(one.tasks for one in workload.lists):
        raise MisuseError(f"{path} holds no call, message or compute; there is nothing to simulate")
    return workload


def _of_traces(path: Path, files: list[Path], name: str) -> Workload:
    """What a folder holds, by the first file of it."""
    if files[0].name.endswith(_CHAKRA):
        return _chakra(path, files, name)
    begin = read_start(files[0], 4096)
    if b"unisono-record" in begin:
        return load_records(files, name)
    # A dump is one object, or a pickle; Chakra's JSON begins with an object of its metadata, and a
    # Kineto trace with one of its own or a list.
    is_dump = b"entries" in begin or b"pg_config" in begin
    if begin[:2] == b"\x1f\x8b" or (starts_json(begin) and not is_dump):
        return _chakra(path, files, name)
    return load_flight_recorder(files, name)


def _chakra(path: Path, files: list[Path], name: str) -> Workload:
    try:
        from unisono.simulate.chakra import load_chakra
    except ImportError as error:
        raise missing_extra("reading Chakra traces", str(error.name), "simulate") from None
    groups: dict[str, list[int]] = {}
    listed = path / "groups.json"
    if listed.exists():
        try:
            groups = {
                str(group): [int(rank) for rank in ranks]
                for group, ranks in json.loads(read_text(listed, _MAX_GROUPS_BYTES)).items()
            }
        except (ValueError, TypeError, AttributeError) as error:
            raise MisuseError(
                f'{listed}: {error}; it holds ranks by group, as {{"0": [0, 1]}}'
            ) from None
    return load_chakra(files, groups, name)
