"""What has a name looks the same in every picture: colour and mark are the name's.

Colours alone do not tell fourteen lines apart, least of all for people who see fewer of them: every
line has marks, and its name at its end.
"""

import zlib
from dataclasses import dataclass

# Distinguishable for people with colour vision deficiency, on white and on black.
PALETTE = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8f7a00", "#7a5fc0",
    "#b0413e", "#4d8f8b", "#946b2d", "#6f7f92", "#c2569b", "#5a9e3a",
)  # fmt: skip

MARKS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross")
DASHES = ("none", "6 3", "2 3")
# Lines of one algorithm differ by their protocols.
_DASH_OF_PROTOCOL = {"simple": 0, "ll": 1, "ll128": 2}


@dataclass(frozen=True)
class Look:
    """A colour of the palette, and a mark."""

    colour: str
    mark: str


# Places in the palette: no two algorithms of a collective share one, and no two names their mark.
_PLACES = {
    "ring": 0, "bidirectional_ring": 1, "tree": 2, "recursive_doubling": 3, "rabenseifner": 4,
    "one_shot": 5, "two_shot": 6, "hierarchical_ring": 7, "hierarchical_ring_direct": 8,
    "hierarchical_recursive": 9, "hierarchical_recursive_direct": 10, "hierarchical_pat": 11,
    "pat8": 12, "hierarchical_bruck": 13,
    # A second name of a colour.
    "dissemination": 14, "knomial4": 15, "pat": 16, "recursive_halving": 17,
    "recursive_doubling_far": 18, "bruck": 19, "direct": 20, "pairwise": 21, "binomial": 22,
    # Libraries.
    "unisono": 28, "nccl": 29, "gloo": 30, "mpich": 31, "openmpi": 32,
    "measured": 39,
    # Collectives.
    "all_reduce": 42, "all_gather": 43, "reduce_scatter": 44, "broadcast": 45, "reduce": 46,
    "gather": 47, "scatter": 48, "all_to_all": 49, "all_to_all_v": 50, "barrier": 51,
}  # fmt: skip


def look_of(name: str) -> Look:
    """The same for a name wherever it is drawn; of a name that nobody foresaw, by its letters."""
    place = _PLACES.get(name)
    if place is None:
        place = zlib.crc32(name.encode())
    count = len(PALETTE)
    # Each further name of a colour has another mark.
    return Look(PALETTE[place % count], MARKS[(place + 2 * (place // count)) % len(MARKS)])


def dash_of(protocol: str) -> int:
    """Index into DASHES."""
    return _DASH_OF_PROTOCOL.get(protocol, 0)
