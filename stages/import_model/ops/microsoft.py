"""Operators of onnxruntime's own domain, which its optimizers write. Attention is apart."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.stages.import_model.ops.common import OptionalInts
from ltp_pipeline.stages.import_model.ops.convolution import conv
from ltp_pipeline.stages.import_model.ops.linear import gemm
from ltp_pipeline.stages.import_model.ops.normalization import simplified_layer_normalization
from ltp_pipeline.stages.import_model.ops.recurrent import make_activations
from ltp_pipeline.stages.import_model.registry import op

microsoft_op = partial(op, domain=ONNXRUNTIME_DOMAIN)


def _apply_activation(x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    if not name:
        return x
    if name == "Clip":
        return x.clamp(parameters[0], parameters[1])
    (function,) = make_activations([name], 1, parameters[:1], parameters[1:])
    return function(x)


@microsoft_op("FusedConv", weights=(1, 2))
def fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: OptionalInts = None,
    group: int = 1,
    kernel_shape: OptionalInts = None,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    y = conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if z is not None:
        y = y + z
    return _apply_activation(y, activation, activation_params)


@microsoft_op("FusedGemm", weights=(1, 2))
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _apply_activation(y, activation, (activation_alpha, activation_beta))


@microsoft_op("FusedMatMul", weights=(1,))
def fused_mat_mul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    a = _transpose_factor(a, transA, transBatchA)
    b = _transpose_factor(b, transB, transBatchB)
    y = a @ b
    return y if alpha == 1.0 else alpha * y


def _transpose_factor(x: Tensor, is_transposed: int, is_batch_inside: int) -> Tensor:
    if is_batch_inside:
        x = x.movedim(0, -2)
    if is_transposed and x.dim() > 1:
        x = x.transpose(-1, -2)
    return x


@microsoft_op("Gelu")
def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


@microsoft_op("BiasGelu", weights=(1,))
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@microsoft_op("FastGelu", weights=(1,))
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is not None:
        x = x + bias
    return F.gelu(x, approximate="tanh")


@microsoft_op("QuickGelu")
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@microsoft_op("SkipLayerNormalization", weights=(2, 3, 4))
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Tensor | None, ...]:
    total = x + skip
    if bias is not None:
        total = total + bias
    y = F.layer_norm(total, gamma.shape, gamma, beta, epsilon)
    return y, None, None, total


@microsoft_op("SkipSimplifiedLayerNormalization", weights=(2, 3))
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Tensor | None, ...]:
    total = x + skip
    if bias is not None:
        total = total + bias
    y, _ = simplified_layer_normalization(total, gamma, epsilon=epsilon)
    return y, None, None, total


@microsoft_op("EmbedLayerNormalization", constants=(0, 1, 7, 8), weights=(2, 3, 4, 5, 6))
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,  # it tells the shape of an output
) -> tuple[Tensor, ...]:
    device = word_embedding.device
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1])
    words = F.embedding(input_ids.to(device), word_embedding)
    total = words + F.embedding(position_ids.to(device), position_embedding)
    if segment_ids is not None and segment_embedding is not None:
        total = total + F.embedding(segment_ids.to(device), segment_embedding)
    lengths = torch.zeros(len(input_ids)) if mask is None else mask.sum(1)
    y = F.layer_norm(total, gamma.shape, gamma, beta, epsilon)
    return y, lengths.to(torch.int32), total
