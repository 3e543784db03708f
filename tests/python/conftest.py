"""Tables are as wide as where their output is no terminal, wherever the tests run. Fixtures."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from python.hosts import Hosts

# pytest-xdist sets it in its workers, and the command line reads it when it is imported.
os.environ.pop("COLUMNS", None)


@pytest.fixture
def two_minutes() -> Iterator[None]:
    """Ends a test that waits for ever."""
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each command that reads one."""
    from python.commands_with_files import prepare

    folder = tmp_path_factory.mktemp("inputs")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skips where no netbed can be made."""
    from unisono.errors import MachineError
    from unisono.netbed import Netbed, Shape, parse_rate

    try:
        with Netbed(Shape(1, 1, (parse_rate("1mbit"),))):
            pass
    except MachineError as error:
        pytest.skip(f"needs root, iproute2 and a kernel with veth, bridge and tbf: {error}")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Hosts]":
    """Two hosts; skips where none can be made."""
    from python.hosts import make_hosts
    from unisono.errors import MachineError

    try:
        made = make_hosts(tmp_path_factory.mktemp("hosts"))
        found = made.__enter__()
    except MachineError as error:
        pytest.skip(f"no hosts: {error}")
    yield found
    made.__exit__(None, None, None)
