"""Attention, rotary embedding and the causal convolution of state-space models."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import to_torch_type
from ltp_pipeline.stages.import_model.registry import op


def _split_heads(x: Tensor, count: int | None) -> Tensor:
    """Reshape (batch, steps, heads · size) to (batch, heads, steps, size)."""
    if x.dim() == 4:
        return x
    if not count:
        raise ValueError("the number of heads is needed for inputs of rank 3")
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _make_bias(
    q: Tensor,
    keys: int,
    mask: Tensor | None,
    offset: int | Tensor,
    causal: bool,
    window: tuple[int, int],
    valid: Tensor | None,
) -> Tensor | None:
    """Return what is added to the scores: the mask, and minus infinity for hidden positions."""
    nothing = torch.zeros((), dtype=q.dtype, device=q.device)
    never = torch.full((), float("-inf"), dtype=q.dtype, device=q.device)
    bias: Tensor | None = None
    if mask is not None:
        bias = torch.where(mask, nothing, never) if mask.dtype is torch.bool else mask
        if keys > mask.shape[-1]:
            bias = F.pad(bias, (0, keys - mask.shape[-1]), value=float("-inf"))
    row = torch.arange(q.shape[2], device=q.device).unsqueeze(1)
    column = torch.arange(keys, device=q.device)
    ahead = column - row - offset
    allowed = torch.ones_like(ahead, dtype=torch.bool)
    if causal:
        allowed = allowed & (ahead <= 0)
    if window[0] >= 0:
        allowed = allowed & (-ahead <= window[0])
    if window[1] >= 0:
        allowed = allowed & (ahead <= window[1])
    if valid is not None:
        allowed = allowed & (column < valid)
    if causal or valid is not None or max(window) >= 0:
        limits = torch.where(allowed, nothing, never)
        bias = limits if bias is None else bias + limits
    return bias


@op("Attention", since=23, constants=(6,))
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
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    rank = q.dim()
    q, k, v = (
        _split_heads(q, q_num_heads),
        _split_heads(k, kv_num_heads),
        _split_heads(v, kv_num_heads),
    )
    offset: int | Tensor = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present = k, v
    valid = None
    if nonpad_kv_seqlen is not None:
        valid = nonpad_kv_seqlen.to(q.device).reshape(-1, 1, 1, 1)
        offset = offset if past_key is not None else valid - q.shape[2]
    if q.shape[1] != k.shape[1]:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    window = (left_window_size, right_window_size)
    bias = _make_bias(q, k.shape[2], attn_mask, offset, bool(is_causal), window, valid)
    factor = math.sqrt(scale if scale is not None else 1 / math.sqrt(q.shape[3]))
    root = torch.tensor(
        factor, dtype=q.dtype, device=q.device
    )  # in half precision the standard rounds it first
    scores = (q * root) @ (k * root).transpose(2, 3)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    exposed = scores
    biased = scores if bias is None else scores + bias
    if qk_matmul_output_mode == 2:
        exposed = biased
    precise = biased if softmax_precision is None else biased.to(to_torch_type(softmax_precision))
    weights = precise.softmax(-1)
    if bias is not None:  # a row that may look nowhere gives zero, not a division by zero
        weights = weights.masked_fill((bias == float("-inf")).all(-1, keepdim=True), 0.0)
    weights = weights.to(q.dtype)
    if qk_matmul_output_mode == 3:
        exposed = weights
    y = weights @ v
    if rank == 3:
        y = y.transpose(1, 2).flatten(2)
    return (y, *present, exposed)[:n_outputs] if n_outputs > 1 else y


@op("RotaryEmbedding", since=23, constants=(3,), untrained=(1, 2))  # tables of a formula
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
    data = _split_heads(x, num_heads)
    turned = rotary_embedding_dim or data.shape[-1]
    part, rest = data[..., :turned], data[..., turned:]
    if position_ids is not None:
        where = position_ids.to(x.device).long()
        cos_cache, sin_cache = cos_cache[where], sin_cache[where]
    cos, sin = (c.unsqueeze(1)[..., : turned // 2] for c in (cos_cache, sin_cache))
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        part = torch.stack([cos * a - sin * b, sin * a + cos * b], -1).flatten(-2)
    else:
        a, b = part.chunk(2, -1)
        part = torch.cat([cos * a - sin * b, sin * a + cos * b], -1)
    y = torch.cat([part, rest], -1)
    return y if x.dim() == 4 else y.transpose(1, 2).reshape(x.shape)


@op("CausalConvWithState", since=27, weights=(1, 2))
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    reach = weight.shape[2] - 1
    past = x.new_zeros(*x.shape[:2], reach) if past_state is None else past_state
    data = torch.cat([past, x], 2)
    y = F.conv1d(data, weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        y = F.silu(y)
    elif activation != "none":
        raise ValueError(f"unknown activation {activation!r}")
    return y, data[..., data.shape[2] - reach :]
