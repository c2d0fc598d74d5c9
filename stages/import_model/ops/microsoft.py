"""Operators of onnxruntime's own domain, which its optimizers write. Attention is apart."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.stages.import_model.ops.activations import hard_sigmoid, leaky_relu
from ltp_pipeline.stages.import_model.ops.convolution import conv
from ltp_pipeline.stages.import_model.ops.linear import gemm
from ltp_pipeline.stages.import_model.ops.normalization import root_mean_square_norm
from ltp_pipeline.stages.import_model.registry import op

_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "Relu": F.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}


def _apply_activation(x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    if name in _PLAIN:
        return _PLAIN[name](x)
    if name == "LeakyRelu":
        return leaky_relu(x, alpha=parameters[0])
    if name == "Clip":
        return x.clamp(parameters[0], parameters[1])
    if name == "HardSigmoid":
        return hard_sigmoid(x, alpha=parameters[0], beta=parameters[1])
    if name:
        raise ValueError(f"activation {name!r} is not supported")
    return x


@op("FusedConv", weights=(1, 2), domain=ONNXRUNTIME_DOMAIN)
def fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
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
    return _apply_activation(y if z is None else y + z, activation, activation_params)


@op("FusedGemm", weights=(1, 2), domain=ONNXRUNTIME_DOMAIN)
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


@op("FusedMatMul", weights=(1,), domain=ONNXRUNTIME_DOMAIN)
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
    a = a.movedim(0, -2) if transBatchA else a
    b = b.movedim(0, -2) if transBatchB else b
    a = a.transpose(-1, -2) if transA and a.dim() > 1 else a
    b = b.transpose(-1, -2) if transB and b.dim() > 1 else b
    y = torch.matmul(a, b)
    return y if alpha == 1.0 else alpha * y


@op("Gelu", domain=ONNXRUNTIME_DOMAIN)
def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


@op("BiasGelu", weights=(1,), domain=ONNXRUNTIME_DOMAIN)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@op("FastGelu", weights=(1,), domain=ONNXRUNTIME_DOMAIN)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@op("QuickGelu", domain=ONNXRUNTIME_DOMAIN)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@op("SkipLayerNormalization", weights=(2, 3, 4), domain=ONNXRUNTIME_DOMAIN)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor | None, ...]:
    total = x + skip if bias is None else x + skip + bias
    y = F.layer_norm(total, gamma.shape, gamma, beta, epsilon)
    return (y, None, None, total)[:n_outputs] if n_outputs > 1 else y


@op("SkipSimplifiedLayerNormalization", weights=(2, 3), domain=ONNXRUNTIME_DOMAIN)
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor | None, ...]:
    total = x + skip if bias is None else x + skip + bias
    y, _ = root_mean_square_norm(total, gamma, -1, epsilon)
    return (y, None, None, total)[:n_outputs] if n_outputs > 1 else y


@op(
    "EmbedLayerNormalization",
    constants=(0, 1, 7, 8),
    weights=(2, 3, 4, 5, 6),
    domain=ONNXRUNTIME_DOMAIN,
)
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
    mask_index_type: int = 0,  # noqa: ARG001 - it tells the shape of an output
    n_outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    device = word_embedding.device
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1])
    total = F.embedding(input_ids.to(device), word_embedding) + F.embedding(
        position_ids.to(device), position_embedding
    )
    if segment_ids is not None and segment_embedding is not None:
        total = total + F.embedding(segment_ids.to(device), segment_embedding)
    lengths = torch.zeros(len(input_ids)) if mask is None else mask.sum(1)
    lengths = lengths.to(torch.int32)
    return (F.layer_norm(total, gamma.shape, gamma, beta, epsilon), lengths, total)[:n_outputs]
