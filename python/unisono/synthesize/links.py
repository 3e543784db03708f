"""Link graphs: their files, and those of clusters."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.names import check_names
from unisono.simulate.cluster import builtin_clusters, load_cluster, parse_cluster
from unisono.simulate.files import Part, folder, parse, read
from unisono.simulate.quantities import Bandwidth, Duration

_MOST_LINKS = 1 << 21

# Rank 3, or switch "s0".
_Point = int | Annotated[str, Field(pattern=r"^s[0-9]{1,5}$")]
_Points = _Point | list[_Point]


class _Cost(Part):
    latency: Duration
    bandwidth: Bandwidth
    lanes: int = 1


class _Between(_Cost):
    """Both ways between each point of the one side and each of the other."""

    between: tuple[_Points, _Points]

    def pairs(self) -> Iterator[tuple[_Point, _Point]]:
        for one, other in itertools.product(*map(_as_list, self.between)):
            yield one, other
            yield other, one


class _OneWay(_Cost):
    """From each point of the one side to each of the other."""

    from_: _Points = Field(alias="from")
    to: _Points

    def pairs(self) -> Iterator[tuple[_Point, _Point]]:
        yield from itertools.product(_as_list(self.from_), _as_list(self.to))


class _Ring(_Cost):
    """Both ways between neighbours, the last and the first too."""

    ring: list[_Point] = Field(min_length=2, max_length=1 << 16)

    def pairs(self) -> Iterator[tuple[_Point, _Point]]:
        neighbours = list(zip(self.ring, self.ring[1:] + self.ring[:1], strict=True))
        for one, other in neighbours[: 1 if len(self.ring) == 2 else None]:
            yield one, other
            yield other, one


class _Grid(_Cost):
    """Both ways between neighbours of a grid of any dimensions; rank 0 is its first corner."""

    grid: list[Annotated[int, Field(ge=1, le=1 << 16)]] = Field(min_length=1, max_length=8)
    wraps: bool = False

    def pairs(self) -> Iterator[tuple[_Point, _Point]]:
        strides = list(itertools.accumulate(self.grid[:0:-1], lambda a, b: a * b, initial=1))[::-1]
        for place in itertools.product(*map(range, self.grid)):
            rank = sum(at * stride for at, stride in zip(place, strides, strict=True))
            for at, size, stride in zip(place, self.grid, strides, strict=True):
                if at + 1 < size:
                    other = rank + stride
                elif self.wraps and size > 2:
                    other = rank - at * stride
                else:
                    continue
                yield rank, other
                yield other, rank


def _kind(link: object) -> str | None:
    """Which of the kinds of links it is."""
    if isinstance(link, dict):
        return next((kind for kind in ("between", "from", "ring", "grid") if kind in link), None)
    return None


_Link = Annotated[
    Annotated[_Between, Tag("between")]
    | Annotated[_OneWay, Tag("from")]
    | Annotated[_Ring, Tag("ring")]
    | Annotated[_Grid, Tag("grid")],
    Discriminator(
        _kind,
        custom_error_type="kind_of_link",
        custom_error_message="links are given by one of: between, from and to, ring, grid",
    ),
]


class LinksFile(Part):
    """A file of links, format 1; docs/how-to/synthesize.md says what each member means."""

    format: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    description: str
    sources: dict[str, str]
    ranks: Annotated[int, Field(ge=1, le=1 << 16)]
    switches: Annotated[int, Field(ge=0, le=1 << 16)] = 0
    links: list[_Link] = Field(max_length=1 << 16)

    @model_validator(mode="after")
    def _sources_are_known(self) -> "LinksFile":
        for number, link in enumerate(self.links):
            for value in (link.latency, link.bandwidth):
                if value.source not in self.sources:
                    raise ValueError(
                        f"links[{number}]: the source [{value.source}] is not among: "
                        f"{', '.join(self.sources) or 'none'}"
                    )
        return self


def parse_links(
    text: str, where: str = "links", *, ranks: int | None = None, nodes: int = 0
) -> native.LinkGraph:
    """The links that a YAML text describes: a file of links, or a cluster's.

    Args:
        text: The text.
        where: What messages call it.
        ranks: How many of a cluster's ranks; one node's unless given.
        nodes: The nodes of a cluster that the ranks are spread over; 0: as few as possible.

    Raises:
        MisuseError: It is no such text; the message names the member and what would be right.
    """
    if "links" not in parse(_AnyFile, text, where).model_fields_set:
        machine = parse_cluster(text, where).machine
        return native.LinkGraph.of_machine(machine, ranks or machine.ranks_per_node, nodes)
    file = parse(LinksFile, text, where)
    if ranks not in (None, file.ranks) or nodes > 1:
        raise MisuseError(
            f"{where}: {ranks or file.ranks} ranks on {nodes or 1} nodes; a file of links is one "
            f"node of the ranks that it says, {file.ranks}"
        )
    links = list(itertools.islice(_all_links(file), _MOST_LINKS + 1))
    if len(links) > _MOST_LINKS:
        raise MisuseError(f"{where}: more than {_MOST_LINKS:,} links")
    try:
        return native.LinkGraph.make(file.name, file.ranks, file.switches, links)
    except MisuseError as error:
        raise MisuseError(f"{where}: {error}") from None


def load_links(name: str | Path, *, ranks: int | None = None, nodes: int = 0) -> native.LinkGraph:
    """Links by a name that the package has, or from a file; see parse_links.

    Raises:
        MisuseError: There is none of that name, or the file is wrong.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if str(name) in builtin_clusters():
            machine = load_cluster(name).machine
            return native.LinkGraph.of_machine(machine, ranks or machine.ranks_per_node, nodes)
        known = [*builtin_links(), *builtin_clusters()]
        check_names("cluster or file of links", [str(name)], known)
        path = folder() / "links" / f"{name}.yaml"
    return parse_links(read(path), str(name), ranks=ranks, nodes=nodes)


def builtin_links() -> list[str]:
    """Names of the files of links in the package."""
    return sorted(path.stem for path in (folder() / "links").glob("*.yaml"))


class _AnyFile(BaseModel):
    """Either kind of file: reads only what distinguishes them."""

    links: object = None


def _all_links(file: LinksFile) -> Iterator[tuple[int, int, float, float, int]]:
    for number, link in enumerate(file.links):
        if isinstance(link, _Grid) and math.prod(link.grid) > file.ranks:
            raise MisuseError(
                f"links of {file.name}: links[{number}]: a grid of "
                f"{' x '.join(map(str, link.grid))} is {math.prod(link.grid):,} ranks; there are "
                f"{file.ranks}"
            )
        for a, b in link.pairs():
            ends = _number(a, file), _number(b, file)
            yield *ends, link.latency.value, link.bandwidth.value, link.lanes


def _as_list(points: _Points) -> list[_Point]:
    return points if isinstance(points, list) else [points]


def _number(point: _Point, file: LinksFile) -> int:
    if isinstance(point, int):
        if 0 <= point < file.ranks:
            return point
        raise MisuseError(f"links of {file.name}: there is no rank {point}; ranks are 0 to "
                          f"{file.ranks - 1}")  # fmt: skip
    number = int(point[1:])
    if number < file.switches:
        return file.ranks + number
    raise MisuseError(
        f"links of {file.name}: there is no switch {point}; there are {file.switches}, from s0 on"
    )
