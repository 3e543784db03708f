"""Kernels' times: GEMMs by shape, against what was measured and what tiles say."""

from dataclasses import replace

import pytest
from unisono.errors import MisuseError
from unisono.simulate import DEVICES, Device, find_device, find_model
from unisono.simulate.kernels import Share, part_ns

H100, H200 = DEVICES["h100"], DEVICES["h200"]


def test_the_gemm_that_was_measured_takes_what_it_took() -> None:
    """docs/reference/gpu-measurements.md: 8192 x 8192 x 8192 in 1414 us on an H200."""
    assert H200.gemm_ns(8192, 8192, 8192) == pytest.approx(1414e3, rel=0.01)


def test_a_wave_of_tiles_takes_as_long_with_one_tile_as_when_it_is_full() -> None:
    """Section 3.2 of NVIDIA's guide: the 133rd tile of 132 SMs needs a second wave."""
    k = 8192
    full = H100.gemm_ns(11 * 128, 12 * 256, k)
    assert H100.gemm_ns(11 * 128, 11 * 256 + 1, k) == pytest.approx(full)
    more = H100.gemm_ns(11 * 128 + 1, 12 * 256, k)
    # Smaller tiles, which are slower, may fill the second wave better than the largest would.
    assert 1.2 * full < more <= 2 * full


def test_short_sums_and_narrow_matrices_are_slower_for_each_operation() -> None:
    def tflops(m: int, n: int, k: int) -> float:
        return 2 * m * n * k / H100.gemm_ns(m, n, k) / 1e3

    assert tflops(8192, 8192, 256) < 0.75 * tflops(8192, 8192, 8192)
    assert tflops(8192, 64, 8192) < 0.5 * tflops(8192, 8192, 8192)
    # One row reads the whole matrix.
    assert H100.gemm_ns(1, 8192, 8192) >= 2 * 8192 * 8192 / H100.memory_gb_s


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (1, 1, 1), (128, 57344, 8192)], ids=str)
def test_no_gemm_is_faster_than_the_peak(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for device in DEVICES.values():
        assert 2.0 * m * n * k / device.gemm_ns(*shape) / 1e3 < device.peak_tflops


def test_a_roofline_computes_as_before() -> None:
    device = Device(tflops=100, memory_gb_s=1000)
    model = find_model("gpt-7b")
    for part in (*model.parts(), model.head):
        share = Share(tokens=2048, tensor=2)
        forward = part_ns(device, part, share, is_forward=True)
        moved = (part.activations * 2048 + part.parameters * 2) / 2
        assert forward == pytest.approx(max(part.operations * 1024 / 100e3, moved / 1000))
        again = part_ns(device, part, share, is_forward=False, recompute="full")
        assert again == pytest.approx(3 * forward)


def test_attention_is_five_halves_of_its_operations_backward() -> None:
    [part] = [one for one in find_model("llama3-8b").parts() if one.scores]
    scores = replace(part, gemms=(), activations=0.0)
    forward, backward = (
        part_ns(H100, scores, Share(8192), is_forward=is_forward) for is_forward in (True, False)
    )
    assert backward / forward == pytest.approx(2.5 * H100.attention / H100.attention_backward)
    assert part_ns(H100, scores, Share(8192, tensor=4), is_forward=True) == forward / 4


def test_an_unknown_device_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(MisuseError, match="no device 'h300'; there are a100, h100, h200"):
        find_device("h300")
