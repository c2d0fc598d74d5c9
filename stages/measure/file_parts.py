"""The parts of the report that a measured file has."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ltp_pipeline.results import schema
from ltp_pipeline.results import schema_parts as parts

if TYPE_CHECKING:
    from ltp_pipeline.results.records import Accuracy, Latency, Validation
    from ltp_pipeline.results.values import PairedCounts

NO_CLASSES = "the data have no labels, or none that are one class a sample"
FEW_CLASSES = "there are five classes or fewer, or one for each position"
IN_PARTS = "the metric is no share of samples that are right or wrong"


def file_part(v: Validation) -> schema.File:
    """A file as it was proven."""
    return schema.File(
        graph=v.file.graph,
        encoding=v.file.encoding,
        values=v.file.values,
        path=v.file.name,
        sha256=v.file.sha256,
        data_sha256=v.file.data_sha256,
        bytes=v.file.bytes,
        nonzeros=v.counted.nonzeros,
        accuracy=accuracy_part(v.accuracy),
        reasons=why_null(v.accuracy) | why_no_outcomes(v.outcomes),
        outcomes=v.outcomes,
        parity_max_abs=v.parity_max_abs_diff,
        load_ms=v.load_ms,
        latency=tuple(_latency(found) for found in v.latency),
        quantization=None
        if v.file.quantization is None
        else parts.Quantization(**asdict(v.file.quantization)),
        sparse_kernels=_sparse_kernels(v),
    )


def _sparse_kernels(v: Validation) -> parts.SparseKernels | None:
    how = v.file.sparse_kernels
    return (
        None
        if how is None
        else parts.SparseKernels(**asdict(how), largest_difference=v.kernels_gap)
    )


def _latency(found: Latency) -> schema.FileLatency:
    ratio = None if not found.original_ms else found.ms / found.original_ms
    return schema.FileLatency(**asdict(found), ratio=ratio)


def accuracy_part(found: Accuracy) -> parts.Accuracy:
    """An accuracy with how it was measured."""
    return parts.Accuracy(**vars(found))


def why_null(found: Accuracy) -> dict[str, str]:
    """Why a key of an accuracy is null."""
    if found.top1 is None:
        return dict.fromkeys(("accuracy.top1", "accuracy.top5"), NO_CLASSES)
    return {} if found.top5 is not None else {"accuracy.top5": FEW_CLASSES}


def why_no_outcomes(found: PairedCounts | None) -> dict[str, str]:
    """Why there are no counts of right and wrong."""
    return {"outcomes": IN_PARTS} if found is None else {}
