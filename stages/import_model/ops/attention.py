"""Attention, rotary embedding and the causal convolution of state-space models."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import make_range, to_torch_type
from ltp_pipeline.stages.import_model.registry import op

_NEVER = float("-inf")  # score of a hidden position


def split_heads(x: Tensor, count: int | None) -> Tensor:
    """Reshape (batch, steps, heads · size) to (batch, heads, steps, size)."""
    if x.dim() == 4:
        return x
    if not count:
        raise ValueError("the number of heads is needed for inputs of rank 3")
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def _make_mask_bias(mask: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """Return what a mask adds to the scores; keys behind its end are hidden."""
    if mask.dtype is torch.bool:
        bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        mask = bias.masked_fill(~mask, _NEVER)
    missing = keys - mask.shape[-1]
    if missing > 0:
        mask = F.pad(mask, (0, missing), value=_NEVER)
    return mask


def _find_visible_keys(
    ahead: Tensor, left_window: int, right_window: int, valid: Tensor | None
) -> Tensor | None:
    """Return which keys a query may look at.

    Args:
        ahead: How far each key lies ahead of each query.
        left_window: Number of keys behind a query that are visible; negative for all.
        right_window: Number of keys ahead of a query that are visible; negative for all.
        valid: Number of keys that are not padding; None for all.

    Returns:
        True for visible keys, or None if there is no limit.
    """
    limits = []
    if left_window >= 0:
        limits.append(-ahead <= left_window)
    if right_window >= 0:
        limits.append(ahead <= right_window)
    if valid is not None:
        limits.append(make_range(ahead.shape[-1], ahead) < valid)
    return functools.reduce(torch.logical_and, limits) if limits else None


@op("Attention", constants=(6,))
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, ...]:
    rank = q.dim()
    q = split_heads(q, q_num_heads)
    k = split_heads(k, kv_num_heads)
    v = split_heads(v, kv_num_heads)
    offset: int | Tensor = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k = torch.cat([past_key, k], 2)
        v = torch.cat([past_value, v], 2)
    present = (k, v)
    keys = k.shape[2]
    valid = None
    if nonpad_kv_seqlen is not None:
        valid = nonpad_kv_seqlen.to(q.device).reshape(-1, 1, 1, 1)
        if past_key is None:
            offset = valid - q.shape[2]
    bias = None
    if attn_mask is not None:
        bias = _make_mask_bias(attn_mask, keys, q.dtype)
    row = make_range(q.shape[2], q).unsqueeze(1)
    ahead = make_range(keys, q) - row - offset
    last = 0 if is_causal else right_window_size
    visible = _find_visible_keys(ahead, left_window_size, last, valid)
    if visible is not None:
        position_bias = _make_mask_bias(visible, keys, q.dtype)
        bias = position_bias if bias is None else bias + position_bias
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k = k.repeat_interleave(groups, 1)
        v = v.repeat_interleave(groups, 1)
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    # In half precision the standard rounds the root of the scale before both factors take it.
    root = q.new_tensor(math.sqrt(scale))
    scores = (q * root) @ (k * root).transpose(2, 3)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    biased = scores if bias is None else scores + bias
    precise = biased
    if softmax_precision is not None:
        precise = biased.to(to_torch_type(softmax_precision))
    weights = precise.softmax(-1)
    if bias is not None:  # a row that may look nowhere gives zero, not a division by zero
        is_blind = (bias == _NEVER).all(-1, keepdim=True)
        weights = weights.masked_fill(is_blind, 0.0)
    weights = weights.to(q.dtype)
    y = weights @ v
    if rank == 3:
        y = y.transpose(1, 2).flatten(2)
    exposed = {2: biased, 3: weights}.get(qk_matmul_output_mode, scores)
    return y, *present, exposed


@op("RotaryEmbedding", constants=(3,), untrained=(1, 2))  # tables of a formula
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    data = split_heads(x, num_heads)
    width = rotary_embedding_dim or data.shape[-1]
    if position_ids is not None:
        positions = position_ids.to(x.device).long()
        cos_cache = cos_cache[positions]
        sin_cache = sin_cache[positions]
    cos = cos_cache.unsqueeze(1)[..., : width // 2]
    sin = sin_cache.unsqueeze(1)[..., : width // 2]
    rotated = data[..., :width]
    axis = -1 if interleaved else -2  # of the two halves
    shape = (-1, 2) if interleaved else (2, -1)
    a, b = torch.unflatten(rotated, -1, shape).unbind(axis)
    new_a = cos * a - sin * b
    new_b = sin * a + cos * b
    rotated = torch.stack([new_a, new_b], axis).flatten(-2)
    y = torch.cat([rotated, data[..., width:]], -1)
    if x.dim() == 4:
        return y
    return y.transpose(1, 2).reshape(x.shape)


@op("CausalConvWithState", weights=(1, 2))
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    reach = weight.shape[2] - 1
    if past_state is None:
        past_state = x.new_zeros(*x.shape[:2], reach)
    data = torch.cat([past_state, x], 2)
    y = F.conv1d(data, weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        y = F.silu(y)
    elif activation != "none":
        raise ValueError(f"unknown activation {activation!r}")
    return y, data[..., data.shape[2] - reach :]
