"""bench/gpu/peer_plot.py: the plot of the README is what its result says."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLOT = runpy.run_path(str(ROOT / "bench" / "gpu" / "peer_plot.py"))
RESULT = ROOT / "bench" / "results" / "gpu_nccl_4.json"
PICTURE = ROOT / "docs" / "images" / "nccl_4_h200.svg"


def row(**members):
    usual = {
        "collective": "all_reduce",
        "bytes": 1024,
        "mode": "graph",
        "in_place": False,
        "ranks": 2,
        "time_us": 2.0,
        "peer_us": 3.0,
    }
    return usual | members


def test_a_line_has_the_ratio_of_each_size_in_graphs_and_out_of_place():
    rows = [
        row(bytes=4096, peer_us=1.0),
        row(),
        row(mode="eager", peer_us=9.0),
        row(in_place=True, peer_us=9.0),
        row(collective="send_recv"),
    ]
    (line,) = PLOT["read"]({"rows": rows})
    assert (line.name, line.points) == ("all_reduce", [(1024, 1.5), (4096, 0.5)])


def test_sizes_have_the_largest_unit():
    assert [PLOT["size"](n) for n in (8, 1024, 3 << 20, 1 << 30, 1 << 41)] == [
        "8 B",
        "1 KiB",
        "3 MiB",
        "1 GiB",
        "2048 GiB",
    ]


def test_the_picture_is_drawn_from_the_result(tmp_path, monkeypatch):
    drawn = tmp_path / "drawn.svg"
    monkeypatch.setattr("sys.argv", ["peer_plot.py", str(RESULT), str(drawn)])
    PLOT["main"]()
    assert drawn.read_text(encoding="utf-8") == PICTURE.read_text(encoding="utf-8")
    assert len(PLOT["read"](json.loads(RESULT.read_text(encoding="utf-8")))) == 6
