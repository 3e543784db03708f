"""The report's plots."""

from collections.abc import Sequence

from unisono import _unisono as native
from unisono.bench.ratios import Point, peers_in
from unisono.bench.rows import Row
from unisono.draw.chart import Axis, Series, draw_chart

SIZE_AXIS = Axis("size (bytes; the larger of input and output)", True, lambda x: _bytes(x), base=2)


def _bytes(value: float) -> str:
    return native.format_bytes(max(0, round(value)))


def bandwidth_plot(collective: str, rows: Sequence[Row]) -> str:
    """Bus bandwidth by size, a line for each algorithm; empty if nothing has a bandwidth.

    At each size an algorithm is shown with the best of its protocols.
    """
    best: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.collective == collective and row.busbw_gb_s > 0:
            line = best.setdefault(row.algorithm, {})
            line[row.bytes] = max(row.busbw_gb_s, line.get(row.bytes, 0.0))
    if not best:
        return ""
    series = [
        Series(algorithm, sorted((float(size), busbw) for size, busbw in line.items()))
        for algorithm, line in best.items()
    ]
    title = f"{collective}: bus bandwidth with the best protocol"
    y_axis = Axis("bus bandwidth (GB/s)", logarithmic=True)
    return draw_chart(title, SIZE_AXIS, y_axis, series, standalone=False)


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
                colour=index,
            )
            for index, peer in enumerate(peers_in(points))
        ]
        sizes = [float(point.ours.bytes) for point in own]
        series.append(Series("as fast", [(min(sizes), 1.0), (max(sizes), 1.0)], dash=1))
        title = f"{collective}: how many times as fast as each library"
        y_axis = Axis("their time / ours", logarithmic=True)
        plots.append(draw_chart(title, SIZE_AXIS, y_axis, series, standalone=False))
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
                colour=index,
                dash=index,
            )
            for index, (name, curve) in enumerate(curves.items())
        ]
        plots.append(draw_chart(title, Axis("epoch"), Axis(what), series, standalone=False))
    return plots
