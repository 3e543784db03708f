"""The report's plots."""

from collections.abc import Sequence

from unisono import _unisono as native
from unisono.bench.rows import Row
from unisono.draw.chart import Axis, Series, draw_chart

_SIZE = Axis("size (bytes; the larger of input and output)", True, lambda x: _bytes(x), base=2)


def _bytes(value: float) -> str:
    return native.format_bytes(max(0, round(value)))


def bandwidth_plot(collective: str, rows: Sequence[Row]) -> str:
    """Bus bandwidth by size, a line for each algorithm and protocol; empty if there is none."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.collective == collective and row.busbw_gb_s > 0:
            lines.setdefault((row.algorithm, row.protocol), []).append(row)
    if not lines:
        return ""
    algorithms = list(dict.fromkeys(algorithm for algorithm, _ in lines))
    protocols = native.protocols()
    series = [
        Series(
            f"{algorithm}, {protocol}",
            sorted((float(row.bytes), row.busbw_gb_s) for row in group),
            colour=algorithms.index(algorithm),
            dash=protocols.index(protocol),
        )
        for (algorithm, protocol), group in lines.items()
    ]
    y_axis = Axis("bus bandwidth (GB/s)", logarithmic=True)
    return draw_chart(f"{collective}: bus bandwidth", _SIZE, y_axis, series, standalone=False)


def training_plots(curves: dict[str, dict[str, list[float]]]) -> list[str]:
    """Loss and accuracy by epoch, a line for each way of training."""
    plots = []
    for what, title in (
        ("loss", "mean loss on the training samples"),
        ("accuracy", "test accuracy"),
    ):
        series = [
            Series(
                name,
                [(float(epoch), value) for epoch, value in enumerate(curve[what], 1)],
                colour=index,
                dash=index,
            )
            for index, (name, curve) in enumerate(curves.items())
        ]
        plots.append(draw_chart(title, Axis("epoch"), Axis(what), series, standalone=False))
    return plots
