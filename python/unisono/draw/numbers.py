"""Numbers for people: with a unit and its prefix, never as 1e-06."""

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, ""))
_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"), (1e-6, "ps"))


def plain(value: float, digits: int = 4) -> str:
    """So many digits that count, or all of a large number, without an exponent: "0.000001"."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{float(f'{value:.{digits - 1}e}'):,.12f}"
    return text.rstrip("0").rstrip(".")


def with_unit(value: float, steps: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    """In the largest unit of which there is one at least; steps go down."""
    size = abs(value)
    factor, unit = next((step for step in steps if size >= step[0] * (1 - 1e-9)), steps[-1])
    if value == 0:
        unit = next((name for one, name in steps if one == 1.0), unit)
    return f"{plain(value / factor, digits)} {unit}"


def time_us(value: float, digits: int = 3) -> str:
    """Microseconds as "3.5 ns", "12 µs", "1.2 ms" or "8.7 s"."""
    return with_unit(value, _TIMES, digits)


def gb_s(value: float, digits: int = 3) -> str:
    """10^9 bytes a second as "1 KB/s", "250 MB/s" or "12 GB/s"."""
    steps = tuple((factor / 1e9, f"{prefix}B/s") for factor, prefix in _PREFIXES)
    return with_unit(value, steps, digits)


def times(value: float) -> str:
    """A ratio, as "0.5x"."""
    return f"{plain(value, 3)}x"
