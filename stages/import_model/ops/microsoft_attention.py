"""Attention and rotary embedding of onnxruntime's own domain, which its optimizer writes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.stages.import_model.ops.attention import (
    rotary_embedding as standard_rotary_embedding,
)
from ltp_pipeline.stages.import_model.registry import op


def _split_heads(x: Tensor, count: int) -> Tensor:
    """Reshape (batch, steps, heads · size) to (batch, heads, steps, size)."""
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def _make_padding_bias(mask: Tensor, keys: int, filter_value: float, like: Tensor) -> Tensor:
    """Return what is added to the scores for a mask of keys: lengths, or ones for visible keys."""
    keep = mask.to(like.device)
    if keep.dim() == 1:
        if keep.numel() != len(like):
            raise ValueError("a mask with the starts of keys is not supported")
        keep = torch.arange(keys, device=like.device) < keep.unsqueeze(1)
    if keep.dim() > 3:
        raise ValueError(f"a mask of rank {keep.dim()} is not supported")
    keep = keep.reshape(len(keep), *[1] * (4 - keep.dim()), *keep.shape[1:])
    return torch.where(keep > 0, 0.0, filter_value).to(like.dtype)


def _compute_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    padding: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    causal: bool,
    filter_value: float,
) -> tuple[Tensor, Tensor]:
    """Return the outputs of the heads, concatenated, and the scores."""
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    for added in (padding, bias):
        scores = scores if added is None else scores + added
    if causal:
        queries, keys = scores.shape[-2:]
        later = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(
            keys - queries + 1
        )
        scores = scores + torch.where(later, filter_value, 0.0).to(scores.dtype)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2), scores


@op("Attention", weights=(1, 2), constants=(3, 6), domain=ONNXRUNTIME_DOMAIN)
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
    if (
        do_rotary
        or rotary_embedding_dim
        or past_present_share_buffer
        or past_sequence_length is not None
    ):
        raise ValueError("rotary embedding inside it and shared buffers are not supported")
    projected = x @ weights if bias is None else x @ weights + bias
    sizes = list(qkv_hidden_sizes or [projected.shape[-1] // 3] * 3)
    q, k, v = (
        _split_heads(part, num_heads) for part in torch.split_with_sizes(projected, sizes, -1)
    )
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    padding = (
        None
        if mask_index is None
        else _make_padding_bias(mask_index, k.shape[2], mask_filter_value, q)
    )
    y, _ = _compute_attention(
        q, k, v, padding, attention_bias, scale, bool(unidirectional), mask_filter_value
    )
    return (y, torch.stack([k, v])) if n_outputs > 1 else y


@op("MultiHeadAttention", weights=(3,), constants=(4, 8, 9), domain=ONNXRUNTIME_DOMAIN)
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
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    if past_sequence_length is not None or cache_indirection is not None:
        raise ValueError("shared buffers are not supported")
    q, k, v = _split_query_key_value(query, key, value, bias, num_heads)
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    padding = (
        None
        if key_padding_mask is None
        else _make_padding_bias(key_padding_mask, k.shape[2], mask_filter_value, q)
    )
    y, scores = _compute_attention(
        q, k, v, padding, attention_bias, scale, bool(unidirectional), mask_filter_value
    )
    return (y, k, v, scores)[:n_outputs] if n_outputs > 1 else y


def _split_query_key_value(
    query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value by heads.

    Packed ones have shape (batch, steps, heads, parts, size).
    """
    if key is None:
        q, k, v = (part.flatten(2) for part in query.unbind(3))
    elif value is None:
        q, (k, v) = query, (part.flatten(2) for part in key.unbind(3))
    else:
        q, k, v = query, key, value
    if bias is not None:
        width = q.shape[-1]
        q = q + bias[:width]
        k = k + bias[width : 2 * width] if k.dim() == 3 else k
        v = v + bias[2 * width :] if v.dim() == 3 else v
    q, k, v = (x if x.dim() == 4 else _split_heads(x, heads) for x in (q, k, v))
    return q, k, v


@op("RotaryEmbedding", constants=(1,), untrained=(2, 3), domain=ONNXRUNTIME_DOMAIN)
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
        position_ids = (position_ids + torch.arange(steps)).expand(len(x), steps)
    heads = num_heads or x.shape[-1] // (2 * cos_cache.shape[-1])
    return standard_rotary_embedding(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved,
        num_heads=heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )
