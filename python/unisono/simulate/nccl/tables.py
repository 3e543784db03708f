"""NCCL's tuning constants by version: nccl/src/graph/tuning.cc of 2.19.4 to 2.30.7.

Microseconds and GB/s. Triples by protocol are of LL, LL128 and Simple; triples by nodes are of one
node, of two, and of more.
"""

from dataclasses import dataclass, replace
from functools import cache

from unisono.errors import MisuseError

PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = (
    "ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "pat",
)  # fmt: skip
# None of the public tables that the timing was fitted to has run these.
UNMEASURED = ("collnet_direct", "collnet_chain", "pat")

Triple = tuple[float, float, float]

# The oldest version whose tables are here, and the newest that was looked at.
OLDEST, NEWEST = (2, 19), (2, 32)


@dataclass(frozen=True)
class Generation:
    """What NCCL knows of a GPU.

    Attributes:
        inside: Channels and GB/s of each that it finds on one node with all NVLinks
            (nccl/src/graph/search.cc; the links' speed is in nccl/src/graph/topo.h).
        speeds: GB/s of a channel that it tries between nodes.
        inside_speeds: The same inside.
        nvlink_gb_s: All links of a GPU.
    """

    inside: tuple[int, float]
    speeds: tuple[float, ...]
    inside_speeds: tuple[float, ...]
    nvlink_gb_s: float
    ll_gb_s: float
    ring_ll128_gb_s: Triple
    tree_ll128_gb_s: Triple
    tree_gb_s: Triple
    nvls_tree_gb_s: Triple
    nvls: tuple[int, float]
    nvls_efficiency: float


@dataclass(frozen=True)
class Tables:
    """The constants of a version.

    Attributes:
        nvls_by_efficiency: NVLS's bandwidth is from the efficiency factors, of 2.28 and later;
            before, 5/6 of a channel's.
        ll_part: LL's part of a ring's bandwidth on one node and in all other cases.
        pat_part: PAT's part of the channels' bandwidth; 0: the version has no PAT.
    """

    version: tuple[int, int]
    base_us: dict[str, Triple]
    nvlink_us: dict[str, Triple]
    network_us: dict[str, Triple]
    ll_between_gb_s: dict[str, tuple[float, float]]
    generations: dict[str, Generation]
    nvls_by_efficiency: bool
    ll_part: tuple[float, float]
    pat_part: float


_AMPERE = Generation(
    (12, 20.0), (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3), 240.0, 87.7,
    (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (24.0, 23.6, 17.8), (24.0, 23.6, 17.8), (0, 0.0), 0.0,
)  # fmt: skip
_HOPPER = Generation(
    (12, 30.0), (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3), 370.8, 141.0,
    (36.7, 36.7, 36.7), (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), (0.0, 57.7, 45.5), (16, 20.0), 0.85,
)  # fmt: skip
_BLACKWELL = Generation(
    (16, 45.0), (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18), 721.8, 282.0,
    (40.0, 40.0, 40.0), (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), (0.0, 96.0, 80.0), (16, 45.0),
    0.74,
)  # fmt: skip

_NEWEST = Tables(
    version=(2, 28),
    base_us={
        "tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4),
        "nvls": (0.0, 0.0, 0.0), "nvls_tree": (0.0, 0.0, 0.0),
        "collnet_direct": (0.0, 0.0, 0.0), "collnet_chain": (0.0, 0.0, 0.0),
        "pat": (8.0, 8.0, 8.0),
    },
    nvlink_us={
        "tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4),
        "nvls": (0.0, 0.0, 25.0), "nvls_tree": (0.0, 0.0, 25.0),
        "collnet_direct": (0.0, 0.0, 3.7), "collnet_chain": (0.0, 0.0, 2.8),
        "pat": (0.0, 0.0, 4.0),
    },
    network_us={
        "tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0),
        "nvls": (0.0, 0.0, 18.0), "nvls_tree": (0.0, 0.0, 20.9),
        "collnet_direct": (0.0, 0.0, 31.0), "collnet_chain": (0.0, 0.0, 30.0),
        "pat": (0.0, 0.0, 14.0),
    },
    ll_between_gb_s={"intel": (39.0, 20.4), "arm": (39.0, 20.4), "amd": (22.5, 19.0)},
    generations={"ampere": _AMPERE, "hopper": _HOPPER, "blackwell": _BLACKWELL},
    nvls_by_efficiency=True,
    ll_part=(0.5, 0.5),
    pat_part=0.75,
)  # fmt: skip

# Blackwell's first numbers were twice Hopper's.
_TWICE = replace(
    _BLACKWELL, ring_ll128_gb_s=(73.4, 73.4, 73.4), tree_ll128_gb_s=(73.4, 73.4, 58.0),
    tree_gb_s=(77.4, 82.8, 72.0),
)  # fmt: skip
_V25 = replace(
    _NEWEST, version=(2, 25), network_us={**_NEWEST.network_us, "nvls_tree": (0.0, 0.0, 14.0)},
    generations={**_NEWEST.generations, "blackwell": _TWICE}, nvls_by_efficiency=False,
)  # fmt: skip
_V21 = replace(
    _V25, version=(2, 21), base_us={**_V25.base_us, "tree": (6.8, 14.0, 0.0)},
    nvlink_us={**_V25.nvlink_us, "tree": (0.6, 1.25, 28.0)},
    network_us={**_V25.network_us, "tree": (5.0, 8.5, 28.0)}, pat_part=0.0,
)  # fmt: skip
_V23 = replace(_V25, version=(2, 23), pat_part=0.85)
_V19 = replace(
    _V21, version=(2, 19),
    nvlink_us={**_V21.nvlink_us, "nvls": (0.0, 0.0, 23.0), "nvls_tree": (0.0, 0.0, 23.0)},
    generations={**_V21.generations, "hopper": replace(_HOPPER, ll_gb_s=87.7)},
    ll_part=(1 / 3, 1 / 4),
)  # fmt: skip
_BY_VERSION = (_NEWEST, _V25, _V23, _V21, _V19)


@cache
def tables_of(version: str) -> Tables:
    """Those of a version, as "2.27.7"; of the newest if empty.

    Raises:
        MisuseError: It is no version, or one that is not known.
    """
    if not version:
        return _NEWEST
    try:
        major, minor, *_ = (int(part) for part in version.split("."))
    except ValueError:
        raise MisuseError(f"'{version}' is no version of NCCL; write it as 2.27.7") from None
    if not OLDEST <= (major, minor) <= NEWEST:
        first, last = (".".join(map(str, one)) for one in (OLDEST, NEWEST))
        raise MisuseError(f"NCCL {version} is not known; {first} to {last} are")
    return next(one for one in _BY_VERSION if one.version <= (major, minor))


# A tree's bandwidth, as a part of what the formula says, by protocol and size: 64 B, 128 B, ...
TREE_PART = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
     0.9, 1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
     0.9, 0.9, 0.9, 1.0, 1.0),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
     0.7, 0.7, 0.8, 0.9, 0.9),
)  # fmt: skip
