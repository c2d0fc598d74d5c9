"""Small models in 8 bits, calibrated and evaluated on random samples."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from ltp_pipeline.exporters.files.run_proof import Feeds
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, GraphContext
from ltp_pipeline.exporters.int8.search import Calibration, FileEvaluation
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import ExportSettings
from tests.support.models import Array, random_inputs, run_onnxruntime

JUDGED = 64


def kernels_of(model: ModelProto) -> list[str]:
    return [kernel.name for kernel in find_layer_weights(OnnxModel.from_proto(model))]


def make_calibration(
    model: ModelProto,
    feeds: Sequence[Feeds] | None = None,
    value: float | None = None,
    **settings: Any,
) -> Calibration:
    """Return calibration on random samples with an evaluation by arg-max, which returns `value` if it is set."""
    judged = random_inputs(model, batch=JUDGED, seed=1)
    expected = run_onnxruntime(model, judged)[0].argmax(-1)

    def samples(count: int) -> Iterator[Feeds]:
        yield from (
            feeds
            if feeds is not None
            else (random_inputs(model, batch=8, seed=s) for s in range(count // 8))
        )

    def judge(path: Path) -> FileEvaluation:
        result = run_onnxruntime(str(path), judged)
        share = float((result[0].argmax(-1) == expected).mean())
        return FileEvaluation(share if value is None else value, [result[0]])

    all_settings = {"int8_samples": 64, **settings}
    return Calibration(samples, judge, Metric(), ExportSettings(formats=("int8",), **all_settings))


def quantize_model(
    model: ModelProto,
    judged: Calibration | None = None,
    kernels: Sequence[str] | None = None,
    **settings: Any,
) -> BuiltGraph:
    """Build the int8 graph of a model."""
    names = kernels_of(model) if kernels is None else list(kernels)
    plain = OnnxModel.from_proto(model)
    weights = {name: plain.get_array(name) for name in names}
    judged = judged or make_calibration(model, **settings)
    return int8.build_graph(GraphContext(plain, weights, names, random_inputs(model), judged))


def run_outputs(model: ModelProto, feeds: dict[str, Array]) -> Array:
    return np.asarray(run_onnxruntime(model, feeds)[0])
