"""Gemm, MatMul and Einsum."""

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.registry import op


@op("Gemm", weights=(1, 2))
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    a = a.T if transA else a
    b = b.T if transB else b
    is_plain = a.is_floating_point() and alpha == beta == 1.0
    if is_plain and c is not None and c.dim() <= 2:
        return torch.addmm(c, a, b)
    y = a @ b
    if alpha != 1.0:
        y = alpha * y
    if c is not None and beta != 0.0:
        y = y + (c if beta == 1.0 else beta * c)
    return y.to(a.dtype)


@op("MatMul", weights=(1,))
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@op("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation.replace(" ", ""), *inputs)
