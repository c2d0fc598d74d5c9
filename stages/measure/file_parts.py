"""The parts of the report that a measured file has."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ltp_pipeline.results import schema
from ltp_pipeline.results import schema_parts as parts

if TYPE_CHECKING:
    from ltp_pipeline.results.records import AccuracyResult, LatencyResult, MeasuredFile
    from ltp_pipeline.results.values import PairedCounts

NO_CLASSES = "the data have no labels, or none that are one class a sample"
FEW_CLASSES = "there are five classes or fewer, or one for each position"
IN_PARTS = "the metric is no share of samples that are right or wrong"


def file_part(v: MeasuredFile) -> schema.FileResult:
    """A file as it was proven."""
    return schema.FileResult(
        graph=v.file.graph,
        encoding=v.file.encoding,
        weight_storage=v.file.weight_storage,
        path=v.file.name,
        sha256=v.file.sha256,
        data_sha256=v.file.data_sha256,
        bytes=v.file.bytes,
        nonzeros=v.counted.nonzeros,
        accuracy=accuracy_part(v.accuracy),
        reasons=why_null(v.accuracy) | why_no_outcomes(v.paired_counts),
        paired_counts=v.paired_counts,
        parity_max_abs=v.parity_max_abs_diff,
        load_ms=v.load_ms,
        latency=tuple(_latency(found) for found in v.latency),
        quantization=None
        if v.file.quantization is None
        else parts.QuantizationInfo(**asdict(v.file.quantization)),
        sparse_kernels=_sparse_kernels(v),
    )


def _sparse_kernels(v: MeasuredFile) -> parts.SparseKernelInfo | None:
    how = v.file.sparse_kernels
    return (
        None
        if how is None
        else parts.SparseKernelInfo(**asdict(how), largest_difference=v.kernels_gap)
    )


def _latency(found: LatencyResult) -> schema.FileLatencyResult:
    ratio = None if not found.original_ms else found.ms / found.original_ms
    return schema.FileLatencyResult(**asdict(found), ratio=ratio)


def accuracy_part(found: AccuracyResult) -> parts.AccuracyResult:
    """An accuracy with how it was measured."""
    return parts.AccuracyResult(**vars(found))


def why_null(found: AccuracyResult) -> dict[str, str]:
    """Why a key of an accuracy is null."""
    if found.top1 is None:
        return dict.fromkeys(("accuracy.top1", "accuracy.top5"), NO_CLASSES)
    return {} if found.top5 is not None else {"accuracy.top5": FEW_CLASSES}


def why_no_outcomes(found: PairedCounts | None) -> dict[str, str]:
    """Why there are no counts of right and wrong."""
    return {"paired_counts": IN_PARTS} if found is None else {}
