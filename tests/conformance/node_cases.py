"""ONNX's own node cases: which of them concern us, and what happens when they run."""

import functools
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, numpy_helper

from ltp_pipeline.graph.nodes import STANDARD_DOMAINS
from ltp_pipeline.stages.import_model.values import TORCH_TYPES, array_to_torch
from tests.support.imported import compile_model

EXPECTED_FAILURES = Path(__file__).with_name("expected_failures.toml")


@functools.cache
def all_cases() -> tuple[Any, ...]:
    """Every node case of the installed onnx; making them takes some seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's overflows, on purpose
        return tuple(collect_testcases(None))


def is_plain(model: ModelProto) -> bool:
    """Whether a case is about plain tensors of types torch has, in the standard's own domain.

    Left out are strings, sequences, optionals, 4- and 8-bit floats and operators of other domains.
    The types of the graph's inputs and outputs decide.
    """
    values = [*model.graph.input, *model.graph.output]
    return all(n.domain in STANDARD_DOMAINS for n in model.graph.node) and all(
        v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in TORCH_TYPES
        for v in values
    )


def plain_cases() -> list[Any]:
    """The cases that must pass or have a reason."""
    return [case for case in all_cases() if is_plain(case.model)]


def operator_of(case: Any) -> str | None:
    """The operator that a case of a single node is about."""
    return case.model.graph.node[0].op_type if len(case.model.graph.node) == 1 else None


@functools.cache
def results() -> Mapping[str, str | None]:
    """For each plain case what went wrong, None when nothing did."""
    return {case.name: failure(case) for case in plain_cases()}


def failure(case: Any) -> str | None:
    """Run one case as its authors mean it, with its own tolerances."""
    torch.manual_seed(0)
    try:
        module = compile_model(case.model)
        for inputs, outputs in case.data_sets:
            _compare(
                module(*map(tensor, inputs)), [tensor(o) for o in outputs], case.rtol, case.atol
            )
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the answer
        return f"{type(error).__name__}: {error}"
    return None


def tensor(value: Any) -> torch.Tensor:
    """A case's input or output as a torch tensor."""
    return array_to_torch(
        numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    )


def _compare(
    actual: Iterable[Any], expected_tensors: list[torch.Tensor], rtol: float, atol: float
) -> None:
    for y, expected in zip(actual, expected_tensors, strict=True):
        assert y.dtype == expected.dtype, f"{y.dtype} where {expected.dtype} is expected"
        assert y.shape == expected.shape, (
            f"shape {tuple(y.shape)} where {tuple(expected.shape)} is expected"
        )
        if y.dtype is torch.bfloat16:
            y, expected = y.float(), expected.float()
        np.testing.assert_allclose(y.detach().numpy(), expected.numpy(), rtol, atol)


def expected_failures() -> dict[str, str]:
    """Case → reason, from the table beside this file."""
    groups = tomllib.loads(EXPECTED_FAILURES.read_text(encoding="utf-8"))["group"]
    return {case: group["reason"] for group in groups for case in group["cases"]}
