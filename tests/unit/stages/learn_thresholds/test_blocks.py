"""Blocks: sizes, and masks that keep whole ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, LayerWeight
from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds import blocks, masks


def weights(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def blocks_of(tensor: Tensor, axis: int) -> Tensor:
    """The weights of a block in a row."""
    return tensor.movedim(axis, -1).reshape(-1, BLOCK_SIZE)


@pytest.mark.parametrize(
    ("shape", "axis"), [((8, 3, 2, 2), 0), ((5, 12), 1), ((2, 3, 4), 2), ((2, 8, 3), 1)]
)
def test_weight_size_is_the_rms_of_its_block(shape: tuple[int, ...], axis: int):
    w = weights(shape)
    r = blocks.block_sizes(w, axis)
    assert r.shape == w.shape
    expected = blocks_of(w, axis).square().mean(1).sqrt()
    assert torch.allclose(blocks_of(r, axis), expected[:, None].expand(-1, BLOCK_SIZE), rtol=1e-12)


def test_neighbouring_output_channels_make_a_block():
    w = torch.zeros(8, 3)
    w[5, 1] = 2.0
    r = blocks.block_sizes(w, 0)
    assert r.nonzero().tolist() == [[4, 1], [5, 1], [6, 1], [7, 1]]
    assert r[4, 1] == 1.0


def test_weight_size_without_blocks_is_not_copied():
    w = {"single": weights((4, 4)), "blocks": weights((4, 4))}
    found = blocks.weight_sizes(w, {"blocks": 0})
    assert found["single"] is w["single"]
    assert found["blocks"] is not w["blocks"]


def test_sizes_pass_no_gradient():
    assert not blocks.block_sizes(weights((4, 4)).requires_grad_(), 0).requires_grad


def test_block_values_repeated_are_restored():
    values = weights((3, 2))
    assert torch.equal(blocks.block_values(blocks.repeat_in_blocks(values, 1), 1), values)


@given(
    st.integers(0, 1000),
    st.booleans(),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from([0, 1, None])),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 1),
    st.floats(0, 0.3),
)
def test_masks_keep_complete_blocks_and_minimum_counts(
    seed: int, ties: bool, layers: list[tuple[int, int, int | None]], share: float, floor: float
):
    """Also where many weights are equal, as those of a network that was rounded are."""
    live, axes, kernels = {}, {}, []
    for i, (channels, others, axis) in enumerate(layers):
        name, shape = (
            f"layer{i}",
            (others, BLOCK_SIZE * channels) if axis == 1 else (BLOCK_SIZE * channels, others),
        )
        w = weights(shape, seed + i)
        live[name] = w.round() if ties else w
        kernels.append(LayerWeight(name, "Gemm", shape))
        if axis is not None:
            axes[name] = axis
    rs = blocks.weight_sizes(live, axes)
    present = {name: int(r.count_nonzero()) for name, r in rs.items()}
    lowest = masks.min_kept_counts(
        kernels, present, MethodSettings(min_layer_density=floor, min_layer_weights=1), axes
    )
    least, most = sum(lowest.values()), sum(present.values())
    count = least + round(share * (most - least))
    tau = {name: torch.tensor(1.0 + i) for i, name in enumerate(live)}
    found = masks.keep_exactly(rs, tau, lowest, count, axes)
    kept = {name: int(mask.sum()) for name, mask in found.items()}
    assert count - BLOCK_SIZE < sum(kept.values()) <= count
    assert all(kept[name] >= lowest[name] for name in kept)
    for name, axis in axes.items():
        rows = blocks_of(found[name], axis)
        assert torch.equal(rows.all(1), rows.any(1))
    if not axes:
        assert sum(kept.values()) == count


@given(st.integers(0, 100), st.integers(1, 40))
def test_thresholds_leave_the_count_to_one_block(seed: int, count: int):
    rs = blocks.weight_sizes(
        {"a": weights((8, 5), seed), "b": weights((3, 4), seed + 1)}, {"a": 0, "b": 1}
    )
    tau = dict.fromkeys(rs, torch.tensor(1.0, dtype=torch.float64))
    found = torch.stack(masks.scale_thresholds(rs, tau, dict.fromkeys(rs, 0), count))
    assert count - BLOCK_SIZE < masks.count_above(rs, found) <= count


def test_mask_keeps_the_largest_blocks():
    w = torch.tensor([[0.0, 0.5], [0.0, 0.5], [0.0, 0.5], [0.9, 0.5]])
    rs = blocks.weight_sizes({"w": w}, {"w": 0})
    found = masks.keep_exactly(rs, {"w": torch.tensor(1.0)}, {"w": 0}, 5, {"w": 0})
    assert found["w"].tolist() == [[False, True]] * 4


def test_min_counts_are_rounded_up_to_blocks():
    kernels = [LayerWeight("blocks", "Conv", (8, 50)), LayerWeight("single", "Conv", (8, 50))]
    settings = MethodSettings(min_layer_density=0.0125, min_layer_weights=1)  # 5 weights
    assert masks.min_kept_counts(
        kernels, {"blocks": 400, "single": 400}, settings, {"blocks": 0}
    ) == {
        "blocks": 8,
        "single": 5,
    }
    assert masks.min_kept_counts(kernels, {"blocks": 4, "single": 4}, settings, {"blocks": 0}) == {
        "blocks": 4,
        "single": 4,
    }


def test_min_counts_of_complete_blocks_are_unchanged():
    kernels, settings = (
        [LayerWeight("blocks", "Conv", (8, 50))],
        MethodSettings(min_layer_density=0.0, min_layer_weights=8),
    )
    assert masks.min_kept_counts(kernels, {"blocks": 400}, settings, {"blocks": 0}) == {"blocks": 8}
