"""Attention and rotary embedding of onnxruntime's own domain, which its optimizer writes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.attention import (
    rotary_embedding as standard_rotary_embedding,
)
from ltp_pipeline.stages.import_model.ops.attention import split_heads
from ltp_pipeline.stages.import_model.ops.common import make_range
from ltp_pipeline.stages.import_model.ops.microsoft import microsoft_op


def _make_padding_bias(mask: Tensor, scores: Tensor, filter_value: float) -> Tensor:
    """Return what is added to the scores for a mask of keys: lengths, or ones for visible keys."""
    visible = mask.to(scores.device)
    if visible.dim() == 1:
        if visible.numel() != len(scores):
            raise ValueError("a mask with the starts of keys is not supported")
        visible = make_range(scores.shape[-1], scores) < visible.unsqueeze(1)
    if visible.dim() > 3:
        raise ValueError(f"a mask of rank {visible.dim()} is not supported")
    while visible.dim() < 4:
        visible = visible.unsqueeze(1)
    bias = torch.where(visible > 0, 0.0, filter_value)
    return bias.to(scores.dtype)


def _compute_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    unidirectional: int,
    filter_value: float,
) -> tuple[Tensor, Tensor]:
    """Return the outputs of the heads, concatenated, and the scores."""
    factor = scale or q.shape[-1] ** -0.5
    scores = q @ k.transpose(-1, -2) * factor
    if mask is not None:
        scores = scores + _make_padding_bias(mask, scores, filter_value)
    if bias is not None:
        scores = scores + bias
    if unidirectional:
        queries, keys = scores.shape[-2:]
        hidden = torch.full((queries, keys), filter_value, device=q.device)
        scores = scores + hidden.triu(keys - queries + 1).to(scores.dtype)
    y = scores.softmax(-1) @ v
    return y.transpose(1, 2).flatten(2), scores


@microsoft_op("Attention", weights=(1, 2), constants=(3, 6))
def attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    has_buffer = past_present_share_buffer or past_sequence_length is not None
    if do_rotary or rotary_embedding_dim or has_buffer:
        raise ValueError("rotary embedding inside it and shared buffers are not supported")
    projected = x @ weights
    if bias is not None:
        projected = projected + bias
    sizes = list(qkv_hidden_sizes or [projected.shape[-1] // 3] * 3)
    parts = torch.split_with_sizes(projected, sizes, -1)
    q, k, v = [split_heads(part, num_heads) for part in parts]
    if past is not None:
        k = torch.cat([past[0], k], 2)
        v = torch.cat([past[1], v], 2)
    y, _ = _compute_attention(
        q, k, v, mask_index, attention_bias, scale, unidirectional, mask_filter_value
    )
    return (y, torch.stack([k, v])) if n_outputs > 1 else y


@microsoft_op("MultiHeadAttention", weights=(3,), constants=(4, 8, 9))
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Tensor, ...]:
    if past_sequence_length is not None or cache_indirection is not None:
        raise ValueError("shared buffers are not supported")
    parts = _unpack_parts(query, key, value)
    if bias is not None:
        width = parts[0].shape[-1]
        starts = (0, width, 2 * width)
        for i, start in enumerate(starts):
            end = start + parts[i].shape[-1]
            if parts[i].dim() == 3:
                parts[i] = parts[i] + bias[start:end]
    q, k, v = [split_heads(part, num_heads) for part in parts]
    if past_key is not None and past_value is not None:
        k = torch.cat([past_key, k], 2)
        v = torch.cat([past_value, v], 2)
    y, scores = _compute_attention(
        q, k, v, key_padding_mask, attention_bias, scale, unidirectional, mask_filter_value
    )
    return y, k, v, scores


def _unpack_parts(query: Tensor, key: Tensor | None, value: Tensor | None) -> list[Tensor]:
    """Return query, key and value.

    Packed ones have shape (batch, steps, heads, parts, size).
    """
    if key is None:
        return [part.flatten(2) for part in query.unbind(3)]
    if value is None:
        return [query, *(part.flatten(2) for part in key.unbind(3))]
    return [query, key, value]


@microsoft_op("RotaryEmbedding", constants=(1,), untrained=(2, 3))
def rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    if is_packed_batching or scale != 1.0:
        raise ValueError("packed batches and scales are not supported")
    steps = x.shape[-2]
    if position_ids.dim() == 1:  # where the first step is
        position_ids = position_ids + torch.arange(steps)
        position_ids = position_ids.expand(len(x), steps)
    size = 2 * cos_cache.shape[-1]
    heads = num_heads or x.shape[-1] // size
    return standard_rotary_embedding(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved,
        num_heads=heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )
