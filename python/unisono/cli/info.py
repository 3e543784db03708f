"""`unisono info`: what this installation has, and what it lacks."""

import importlib.metadata
import importlib.util

from unisono import _unisono as native
from unisono.bench.machine import describe_machine
from unisono.cli.output import Json, print_json, print_table

# Optional packages: what they bring, and so what their absence costs.
_OPTIONAL = {
    "jinja2": "HTML reports (bench --html, the demo): pip install 'unisono[report]'",
    "sklearn": "the digits of the demo: pip install 'unisono[demo]'",
    "mpi4py": "joining a job through mpirun: pip install 'unisono[mpi]'",
    "torch": "PyTorch tensors as arrays; NumPy arrays work without it",
    "ml_dtypes": "NumPy arrays of bfloat16 and float8; dtype= reads integers as these without it",
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def info(json: Json = False) -> None:
    """Show the version, the machine, the transports, optional packages and the settings."""
    optional = {name: _version(name) for name in _OPTIONAL}
    transports = native.transports()
    settings = [one for one in native.settings() if one.is_set]
    if json:
        print_json(
            {
                "machine": describe_machine(),
                "transports": {
                    name: {"works": works, "note": note} for name, works, note in transports
                },
                "packages": optional,
                "settings": {
                    one.variable: _shown(one) if one.is_set else one.default
                    for one in native.settings()
                },
                "settings_set": [one.variable for one in settings],
            }
        )
        return
    print_table(("machine", ""), describe_machine().items())
    print()
    print_table(
        ("transport", "works", ""),
        [(name, "yes" if works else "no", note) for name, works, note in transports],
    )
    print()
    rows = [
        (name, found or "absent", "" if found else f"missing: {_OPTIONAL[name]}")
        for name, found in optional.items()
    ]
    print_table(("optional package", "version", "what its absence costs"), rows)
    print()
    if settings:
        print_table(
            ("setting", "value", "default"),
            [(one.variable, _shown(one), one.default) for one in settings],
        )
    else:
        print(f"None of the {len(native.settings())} settings (UNISONO_*) is set.")


def _version(module: str) -> str | None:
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def _shown(setting: native.Setting) -> str:
    """A setting's value; what proves membership of a job is not shown."""
    return "(hidden)" if setting.variable == "UNISONO_SECRET" else setting.value
