"""What an export graph is: the model's graph as a file has it, and how that is made and proven."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import QuantizationInfo, SparseKernelInfo
from ltp_pipeline.settings.schema import ExportSettings


@dataclass(frozen=True)
class BuiltGraph:
    """A graph with its final dense weights, and what files of it must hold."""

    model: OnnxModel
    weights: Weights
    notes: tuple[str, ...] = ()  # what was done to the graph, for the report
    weight_names: tuple[str, ...] | None = (
        None  # the tensors that hold the kernels, where they have other names
    )
    quantization: QuantizationInfo | None = None
    sparse_kernels: SparseKernelInfo | None = None
    dense_model: OnnxModel | None = (
        None  # what files must compute bit for bit without the sparse kernels; None: the model itself
    )


@dataclass(frozen=True)
class ExportGraph:
    """One graph that files are written of. Its name is its part of the file name; that of the original is left out.

    `make` takes the original graph with its final dense weights, these weights, the names of the kernels, inputs to
    run it on, where there are data what quantising needs, and the settings. It raises ExportFailed unless the new graph
    computes what it should, and NotFaster where it would be of no use.
    """

    name: str
    description: (
        str  # how it differs from the original, for HANDOFF.md; empty for the original itself
    )
    build: Callable[
        [OnnxModel, Weights, Collection[str], Weights, Calibration | None, ExportSettings | None],
        BuiltGraph,
    ]
