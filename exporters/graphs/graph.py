"""Export graph: a form of the model's graph that files are written of."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ltp_pipeline.exporters.int8.search import Calibration
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema_parts import QuantizationInfo, SparseKernelInfo
from ltp_pipeline.settings.schema import ExportSettings


@dataclass(frozen=True)
class GraphContext:
    """The network that export graphs are built from, and what they need to build it."""

    model: OnnxModel  # the original graph with the final dense weights
    weights: Weights  # the final weights by name
    weight_names: Collection[str]  # names of the layer weights
    feeds: Weights  # inputs by name, to run the graph on
    calibration: Calibration | None = None  # for quantization; None without data
    settings: ExportSettings = field(default_factory=ExportSettings)


@dataclass(frozen=True)
class BuiltGraph:
    """A graph with its final dense weights."""

    model: OnnxModel
    weights: Weights  # the weights that files of the graph must hold
    notes: tuple[str, ...] = ()  # for the report: what was done to the graph
    # Names of the tensors that hold the layer weights; None if they have their original names.
    weight_names: tuple[str, ...] | None = None
    quantization: QuantizationInfo | None = None
    sparse_kernels: SparseKernelInfo | None = None
    # The model whose outputs files reproduce bit for bit without the sparse operator library;
    # None if that is `model`.
    dense_model: OnnxModel | None = None


@dataclass(frozen=True)
class ExportGraph:
    """A kind of graph that files are written of.

    `build` raises ExportFailed unless the new graph computes what it should, and NotFaster if it
    would be of no use.
    """

    name: str  # also part of the file name, except for the original graph
    description: str  # for HANDOFF.md: how it differs from the original; empty for the original
    build: Callable[[GraphContext], BuiltGraph]
