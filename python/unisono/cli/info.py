"""`unisono info`: what this installation, this machine and its GPUs have, and what they lack."""

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from typing import Any

from unisono import _unisono as native
from unisono import hardware
from unisono.bench.machine import describe_machine, machine_facts
from unisono.cli.output import Json, print_table, print_text, put_json

# Optional packages: what they bring, and so what their absence costs.
_OPTIONAL = {
    "jinja2": "HTML reports: pip install 'unisono[report]'",
    "cairosvg": "plans drawn as .png or .pdf: pip install 'unisono[draw]'",
    "pydantic": "the simulator: pip install 'unisono[simulate]'",
    "ortools": "exact synthesis of plans: pip install 'unisono[synthesize]'",
    "sklearn": "the digits of the demo: pip install 'unisono[demo]'",
    "mpi4py": "joining a job through Open MPI's mpirun: pip install 'unisono[mpi]'",
    "torch": "PyTorch's tensors and process groups; NumPy arrays work without it",
    "ml_dtypes": "NumPy arrays of bfloat16 and float8; dtype= reads integers as these without it",
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_HIDDEN = "(hidden)"


def info(json: Json = None) -> None:
    """Show what this installation, this machine and its GPUs have.

    Versions, GPUs and their driver, NUMA nodes, network interfaces, fabrics, the network cards of
    each GPU, memory that ranks share, limits, transports, optional packages, and the settings in
    effect.
    """
    found: dict[str, Any] = {
        "machine": machine_facts(),
        "gpus": {**hardware.gpus(), "kernels_compiled": native.has_kernels()},
        "numa_nodes": hardware.numa_nodes(),
        "interfaces": hardware.interfaces(),
        "fabrics": hardware.fabrics(),
        "cards": hardware.cards(),
        "shared_memory": hardware.shared_memory(),
        "limits": hardware.limits(),
        "transports": {
            name: {"works": works, "joins": joins, "note": note}
            for name, works, note, joins in native.transports()
        },
        "packages": {name: _version(name) for name in _OPTIONAL},
        "settings": {one.variable: _value(one) for one in native.settings()},
        "settings_set": [one.variable for one in native.settings() if one.is_set],
    }
    if put_json(json, found, "info"):
        return
    _print_pairs("machine", describe_machine().items())
    _print_gpus(found["gpus"])
    _print_memory(found)
    _print_network(found)
    _print_software(found)
    _print_settings()


def _print_pairs(what: str, pairs: Iterable[tuple[str, str]]) -> None:
    print_table((what, ""), pairs, prose=("",))


def _print_gpus(found: dict[str, Any]) -> None:
    print_text("")
    compiled = "compiled" if found["kernels_compiled"] else "not compiled: built without nvcc"
    driver = found["driver"] or f"none: {found['why_none']}"
    _print_pairs("GPUs", [("driver", driver), ("kernels", compiled)])
    if found["devices"]:
        right = ("GPU", "memory", "NVLinks", "GB/s each way")
        print_table(
            ("GPU", "name", "memory", "capability", "NVLinks", "GB/s each way"),
            [
                (one["index"], one["name"], _bytes(one["memory_bytes"]), one["compute_capability"],
                 one["nvlinks"], one["nvlink_gb_s"])
                for one in found["devices"]
            ],
            right=right,
            folds=("name", "memory", "capability"),
        )  # fmt: skip


def _print_memory(found: dict[str, Any]) -> None:
    print_text("")
    shared, limits = found["shared_memory"], found["limits"]
    free = f"{_bytes(shared['free_bytes'])} free of {_bytes(shared['size_bytes'])}"
    _print_pairs(
        "memory",
        [
            *(
                (f"NUMA node {one['node']}",
                 f"{_bytes(one['memory_bytes'])}, processors {one['processors']}")
                for one in found["numa_nodes"]
            ),
            ("/dev/shm", free if shared else "is not there"),
            ("memlock limit", _bytes(limits["memlock_bytes"], "none")),
            ("open files limit", str(limits["open_files"] or "none")),
        ],
    )  # fmt: skip


def _print_network(found: dict[str, Any]) -> None:
    print_text("")
    print_table(
        ("interface", "state", "address", "GB/s", "MTU"),
        [
            (one["name"], one["state"], one["address"] or "-", _rate(one["gb_s"]),
             one["mtu_bytes"] or "-")
            for one in found["interfaces"]
        ],
        right=("GB/s", "MTU"),
    )  # fmt: skip
    print_text("")
    if found["fabrics"]:
        print_table(
            ("fabric", "port", "link", "state", "GB/s", "NUMA node"),
            [
                (one["device"], one["port"], one["link"], one["state"], _rate(one["gb_s"]),
                 _or_dash(one["numa_node"]))
                for one in found["fabrics"]
            ],
            right=("port", "GB/s", "NUMA node"),
        )  # fmt: skip
    else:
        print_text("No fabric: /sys/class/infiniband lists no RDMA device.")
    print_text("")
    print_cards(found["cards"])


def print_cards(found: list[dict[str, Any]]) -> None:
    """Prints which network cards GPUs and NUMA nodes use between hosts."""
    rows = [
        (user["user"], card["name"], ", ".join(card["interfaces"]) or "-",
         _or_dash(card["pci_address"]), _rate(card["gb_s"]), user["distance"], card["users"])
        for user in found
        for card in user["cards"]
    ]  # fmt: skip
    if rows:
        print_table(
            ("data of", "network card", "interface", "PCI address", "GB/s", "distance", "users"),
            rows,
            right=("GB/s", "users"),
        )
    for user in found:
        if not user["cards"]:
            print_text(f"{user['description']}.")


def _print_software(found: dict[str, Any]) -> None:
    print_text("")
    print_table(
        ("transport", "works", "joins", "how"),
        [
            (name, "yes" if one["works"] else "no", one["joins"], one["note"])
            for name, one in found["transports"].items()
        ],
        prose=("joins", "how"),
    )
    print_text("")
    print_table(
        ("optional package", "version", "what its absence costs"),
        [
            (name, version or "absent", "" if version else _OPTIONAL[name])
            for name, version in found["packages"].items()
        ],
        prose=("what its absence costs",),
    )


def _print_settings() -> None:
    print_text("")
    rows = native.settings()
    in_effect = [one for one in rows if one.is_set]
    if in_effect:
        print_table(
            ("setting", "value", "default"),
            [(one.variable, _shown(one), one.default) for one in in_effect],
            prose=("value",),
        )
    else:
        print_text(f"None of the {len(rows)} settings (UNISONO_*) is set.")


def _version(module: str) -> str | None:
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def _shown(setting: native.Setting) -> str:
    """A setting's value; what proves membership of a job is not shown."""
    return _HIDDEN if setting.variable == "UNISONO_SECRET" else setting.value


def _value(setting: native.Setting) -> str | int | float | bool | None:
    """A setting's value as JSON's types; seconds of a duration, None for an empty text."""
    if setting.variable == "UNISONO_SECRET":
        return _HIDDEN if setting.is_set else None
    text = setting.value
    match setting.type:
        case "integer":
            return int(text)
        case "bytes":
            return native.parse_bytes(text)
        case "duration":
            return native.parse_seconds(text) if text else None
        case "boolean":
            return text in ("1", "true", "yes", "on")
    return text or None


def _bytes(count: int | None, otherwise: str = "unknown") -> str:
    return otherwise if count is None else native.format_bytes(count)


def _or_dash(value: str | int | None) -> str | int:
    return "-" if value is None else value


def _rate(gb_s: float | None) -> str:
    return "-" if gb_s is None else f"{gb_s:g}"
