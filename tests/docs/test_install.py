"""What the pages on installing name is what the build and the package know."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/index.md", "docs/how-to/install.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_the_pythons_that_the_package_supports(name: str) -> None:
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert f"Python {supported[0]} to {supported[-1]}" in (ROOT / name).read_text()
    assert PROJECT["requires-python"] == f">={supported[0]}"


@pytest.mark.parametrize("name", PAGES)
def test_every_switch_of_the_build_and_every_extra_is_known(name: str) -> None:
    text = (ROOT / name).read_text()
    known = (ROOT / "cmake" / "UnisonoOptions.cmake").read_text()
    switches = re.findall(r"cmake\.define\.(UNISONO_\w+)|-D(UNISONO_\w+)", text)
    assert switches
    assert [one for pair in switches for one in pair if one and f"({one} " not in known] == []
    extras = re.findall(r'pip install "\.[^"\[]*\[(\w+)\]"', text)
    assert [one for one in extras if one not in PROJECT["optional-dependencies"]] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_the_wheel_of_this_version(name: str) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    wheels = re.findall(r"unisono-(\d+\.\d+\.\d+)-", (ROOT / name).read_text())
    assert wheels
    assert set(wheels) == {version}


def test_the_page_on_containers_shows_the_dockerfile() -> None:
    page = (ROOT / "docs" / "how-to" / "containers.md").read_text()
    dockerfile = (ROOT / "packaging" / "Dockerfile").read_text()
    assert f"```dockerfile\n{dockerfile}```" in page
