"""The report's plots."""

from collections.abc import Sequence

from unisono import _unisono as native
from unisono.bench.ratios import Point, peers_in
from unisono.bench.rows import Row
from unisono.draw.chart import Axis, Bar, Series, draw_bars, draw_chart
from unisono.draw.numbers import gb_s, times
from unisono.report.parts import responsive


def _bytes(value: float) -> str:
    return native.format_bytes(max(0, round(value)))


SIZE_AXIS = Axis("size (the larger of input and output)", True, _bytes, base=2)


def _lines(title: str, x_axis: Axis, y_axis: Axis, series: Sequence[Series]) -> str:
    return responsive(
        lambda width: draw_chart(title, x_axis, y_axis, series, width=width, standalone=False)
    )


def bandwidth_plot(collective: str, rows: Sequence[Row]) -> str:
    """Bus bandwidth by size, a line for each algorithm; empty if nothing has a bandwidth.

    At each size an algorithm is shown with the best of its protocols. One size is bars.
    """
    best: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.collective == collective and row.busbw_gb_s > 0:
            line = best.setdefault(row.algorithm, {})
            line[row.bytes] = max(row.busbw_gb_s, line.get(row.bytes, 0.0))
    if not best:
        return ""
    sizes = {size for line in best.values() for size in line}
    title = f"{collective}: bus bandwidth with the best protocol"
    if len(sizes) == 1:
        bars = [Bar(algorithm, max(line.values())) for algorithm, line in best.items()]
        bars.sort(key=lambda bar: -bar.value)
        heading = f"{title}, {_bytes(sizes.pop())}"
        axis = Axis("bus bandwidth", write=gb_s)
        return responsive(
            lambda width: draw_bars(heading, axis, bars, width=width, standalone=False)
        )
    series = [
        Series(algorithm, sorted((float(size), busbw) for size, busbw in line.items()))
        for algorithm, line in best.items()
    ]
    return _lines(title, SIZE_AXIS, Axis("bus bandwidth", True, gb_s), series)


def ratio_plots(points: Sequence[Point]) -> list[str]:
    """A plot for each collective: other libraries' time divided by ours, by size."""
    plots = []
    for collective in dict.fromkeys(point.ours.collective for point in points):
        own = [point for point in points if point.ours.collective == collective]
        series = [
            Series(
                peer,
                [
                    (float(point.ours.bytes), point.ratio(peer))
                    for point in own
                    if peer in point.peers
                ],
            )
            for peer in peers_in(points)
        ]
        sizes = [float(point.ours.bytes) for point in own]
        series.append(Series("as fast", [(min(sizes), 1.0), (max(sizes), 1.0)], dash=1))
        title = f"{collective}: how many times as fast as each library"
        plots.append(_lines(title, SIZE_AXIS, Axis("their time / ours", True, times), series))
    return plots


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
                dash=index,
            )
            for index, (name, curve) in enumerate(curves.items())
        ]
        plots.append(_lines(title, Axis("epoch"), Axis(what), series))
    return plots
