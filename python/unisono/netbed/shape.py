"""What a netbed looks like, and its addresses."""

import re
from dataclasses import dataclass

from unisono.errors import MisuseError

# Each rail is a network 10.77.<rail>.0/24, whose last byte is the node's number from 1 on.
MOST_NODES = 250
MOST_RAILS = 16
_RATES = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


@dataclass(frozen=True)
class Shape:
    """The nodes, and the links from each of them to the switch of each rail.

    Attributes:
        rates: For each rail, the bits a second of its links, in each direction, headers included;
            empty for no limit.
    """

    nodes: int
    ranks_per_node: int
    rates: tuple[int, ...] = ()
    rails: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise MisuseError(f"a netbed of {self.nodes} nodes; 1 to {MOST_NODES} are possible")
        if self.ranks_per_node < 1:
            raise MisuseError(f"{self.ranks_per_node} ranks on each node; it must be 1 or more")
        if not 1 <= self.rails <= MOST_RAILS:
            raise MisuseError(f"{self.rails} rails; 1 to {MOST_RAILS} are possible")
        if self.rates and len(self.rates) != self.rails:
            raise MisuseError(
                f"{len(self.rates)} rates for {self.rails} rails; give one for all or one for each"
            )

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks_per_node

    def address(self, node: int, rail: int = 0) -> str:
        """A node's address on a rail."""
        return f"10.77.{rail}.{node + 1}"

    def describe(self) -> str:
        """For a person."""
        rates = dict.fromkeys(f"{rate / 10**6:g}" for rate in self.rates)
        rate = f" of {' and '.join(rates)} Mbit/s" if rates else ""
        links = "a link" if self.rails == 1 else f"{self.rails} links"
        return f"{self.nodes} nodes with {self.ranks_per_node} ranks and {links}{rate} each"


def parse_shape(text: str, rate: str = "", rails: int = 1) -> Shape:
    """Reads "4x2" (nodes x ranks on each) and rates as `parse_rates` reads them."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise MisuseError(f"cannot read '{text}' as a netbed; write nodes x ranks, as in 4x2")
    return Shape(int(found[1]), int(found[2]), parse_rates(rate, rails), rails)


def parse_rates(text: str, rails: int) -> tuple[int, ...]:
    """Bits a second of each rail: "200mbit" for all, "200mbit,20mbit" for two, "" for no limit."""
    rates = tuple(parse_rate(rate) for rate in text.split(",")) if text else ()
    return rates * min(rails, MOST_RAILS) if len(rates) == 1 else rates


def parse_rate(text: str) -> int:
    """Bits a second of a rate such as "200mbit"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text.lower())
    if not found or not float(found[1]):
        raise MisuseError(f"cannot read '{text}' as a rate; write 500kbit, 200mbit or 1gbit")
    return int(float(found[1]) * _RATES[found[2]])
