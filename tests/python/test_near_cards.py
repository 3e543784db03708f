"""Which network card is shown for which GPU and NUMA node, from the kernel's device files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from python.jobs import run_job
from unisono import cli, hardware
from unisono.cli.info import print_cards

# Two GPUs behind a switch with two cards, and a card at the other NUMA node.
_DEVICES = {
    "pci0000:00/0000:00:01.0/0000:01:00.0": ("0x030200", "0x10de", 0),
    "pci0000:00/0000:00:01.0/0000:02:00.0": ("0x030200", "0x10de", 0),
    "pci0000:00/0000:00:01.0/0000:03:00.0": ("0x020700", "0x15b3", 0),
    "pci0000:00/0000:00:01.0/0000:04:00.0": ("0x020700", "0x15b3", 0),
    "pci0000:80/0000:80:01.0/0000:81:00.0": ("0x020000", "0x8086", 1),
}
_INTERFACES = {
    "pci0000:00/0000:00:01.0/0000:03:00.0": "ibp3s0",
    "pci0000:00/0000:00:01.0/0000:04:00.0": "ibp4s0",
    "pci0000:80/0000:80:01.0/0000:81:00.0": "enp129s0",
}
_RDMA_DEVICES = {"pci0000:00/0000:00:01.0/0000:03:00.0": "mlx5_0"}
_TABLE = """\
data of           network card  interface  PCI address   GB/s  distance  users
GPU 0000:01:00.0  mlx5_0        ibp3s0     0000:03:00.0    25  PIX           1
GPU 0000:02:00.0  ibp4s0        ibp4s0     0000:04:00.0    25  PIX           1
NUMA node 0       mlx5_0        ibp3s0     0000:03:00.0    25  NODE          1
NUMA node 0       ibp4s0        ibp4s0     0000:04:00.0    25  NODE          1
NUMA node 1       enp129s0      enp129s0   0000:81:00.0  12.5  NODE          1
"""


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A folder that stands for /sys."""
    root = tmp_path / "sys"
    for node in range(2):
        folder = root / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{8 * node}-{8 * node + 7}\n")
    links = {name: root / name for name in ("bus/pci/devices", "class/net", "class/infiniband")}
    for folder in links.values():
        folder.mkdir(parents=True)
    for path, (kind, vendor, node) in _DEVICES.items():
        folder = root / "devices" / path
        folder.mkdir(parents=True)
        (folder / "class").write_text(kind)
        (folder / "vendor").write_text(vendor)
        (folder / "numa_node").write_text(str(node))
        (links["bus/pci/devices"] / folder.name).symlink_to(folder)
        if interface := _INTERFACES.get(path):
            files = folder / "net" / interface
            files.mkdir(parents=True)
            (files / "operstate").write_text("up")
            (files / "speed").write_text("200000" if "ib" in interface else "100000")
            (links["class/net"] / interface).symlink_to(files)
        if rdma := _RDMA_DEVICES.get(path):
            files = folder / "infiniband" / rdma
            files.mkdir(parents=True)
            (links["class/infiniband"] / rdma).symlink_to(files)
    return root


def test_info_has_a_row_for_each_card_of_a_gpu_or_numa_node(
    sysfs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    print_cards(hardware.cards(str(sysfs)))
    assert [line.rstrip() for line in capfd.readouterr().out.splitlines() if "─" not in line] == [
        line.rstrip() for line in _TABLE.splitlines()
    ]


def test_the_values_are_those_of_json(sysfs: Path) -> None:
    first = hardware.cards(str(sysfs))[0]
    assert first == {
        "user": "GPU 0000:01:00.0",
        "numa_node": 0,
        "distance": "PIX",
        "cards": [
            {
                "name": "mlx5_0",
                "interfaces": ["ibp3s0"],
                "rdma_devices": ["mlx5_0"],
                "pci_address": "0000:03:00.0",
                "gb_s": 25.0,
                "users": 1,
            }
        ],
        "description": "GPU 0000:01:00.0 uses mlx5_0 (ibp3s0, 0000:03:00.0): PIX, through at most "
        "one PCIe switch",
    }


def test_a_host_without_files_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent")
    (only,) = hardware.cards(absent)
    assert (only["cards"], only["distance"], only["numa_node"]) == ([], None, None)
    print_cards([only])
    said = " ".join(capfd.readouterr().out.split())
    assert said == (
        f"this host has no network card: there is no {absent}, so no distance to a network card is "
        "known."
    )


def test_explain_says_which_cards_are_near_where_a_call_has_several_nodes(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = hardware.cards(str(sysfs))
    monkeypatch.setattr(hardware, "cards", lambda: found)

    def explained(*words: str) -> str:
        command = ["unisono", "explain", "all_reduce", "1MiB", "--ranks", "4", *words]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit):
            cli.main()
        return " ".join(capfd.readouterr().out.split())

    sentence = (
        "Here, GPU 0000:02:00.0 uses ibp4s0 (0000:04:00.0): PIX, through at most one PCIe switch."
    )
    assert sentence in explained("--nodes", "2")
    assert "Here," not in explained()


def test_info_of_this_host_shows_its_cards() -> None:
    command = [sys.executable, "-m", "unisono", "info", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"cards"' in done.stdout


def test_ranks_of_one_host_need_no_card(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = "print(unisono.init().all_reduce(np.ones(1, np.float32))[0])"
    environment = {"UNISONO_RAILS": "near"}
    outcome, said = run_job(tmp_path, capfdbinary, lines, 2, environment=environment)
    assert (outcome.exit_code, said) == (0, ["[0] 2.0", "[1] 2.0"])
