"""Time fast files of networks that differ only in their zeros, layer by layer.

All files and the original run in turns, so that all of them see the same machine. Times of layers
come from onnxruntime's profile, in whole microseconds, and are averaged over many runs.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.graphs import deploy, fast
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.exporters.sparse_ops.cost_model import select_layers
from ltp_pipeline.exporters.sparse_ops.functions import DOMAIN
from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.timing import time_interleaved

TIMING_SECONDS = 0.4  # for each file
PROFILE_SECONDS = 0.3  # for each file
MIN_PROFILED_RUNS = 20
MAX_PROFILED_RUNS = 300
NODE_PREFIX = "ltp_timed_"  # names of sparse operators in a profile
KERNEL_SUFFIX = "_kernel_time"  # of events of onnxruntime's profile
MIN_SHARE = 0.1  # smallest time of a nonzero, as a fraction of the layer's time per element
PICOSECONDS = 1e9  # in a millisecond


class FastTiming(NamedTuple):
    """Times of a fast file, for one sample on one thread.

    Attributes:
        ratio: Latency of the file divided by that of the original.
        layer_ms: Milliseconds of the sparse operators, by name of the layer weight. Layers that the
            file leaves dense are left out.
    """

    ratio: float
    layer_ms: Mapping[str, float]


class FastFileTimer:
    """Times fast files of one network with other zeros.

    Args:
        model: The original graph with its weights.
        weight_names: Names of the layer weights.
        feeds: Inputs by name; the first sample is used.
        min_sparsity: export.accelerate_min_sparsity.

    Raises:
        InputError: There is no library of sparse operators.
    """

    def __init__(
        self,
        model: OnnxModel,
        weight_names: Collection[str],
        feeds: Weights,
        min_sparsity: float | None = None,
    ) -> None:
        self.library_path = library.sparse_ops_library()
        self.instruction_set = library.query_instruction_sets(self.library_path).chosen
        self.model = model
        self.weight_names = tuple(weight_names)
        self.sample = fast.select_first_sample(model, feeds)
        self.min_sparsity = min_sparsity
        deployed, _ = deploy.rewrite_model(model, self.weight_names)
        self.graph, _ = flatten_model(deployed)

    def time_files(self, networks: Sequence[Weights]) -> list[FastTiming | None]:
        """Return times for weights with other zeros; None if no layer is worth converting.

        Args:
            networks: Layer weights by name, of each network. Only their zeros matter.
        """
        timings: list[FastTiming | None] = [None] * len(networks)
        with temporary_folder("timing") as folder:
            original = folder / "original.onnx"
            self._write(self.model, original)
            paths: dict[int, Path] = {}
            layers: dict[int, dict[str, str]] = {}
            for number, weights in enumerate(networks):
                path = folder / f"{number}.onnx"
                names = self._write_fast_file(weights, path)
                if names:
                    paths[number] = path
                    layers[number] = names
            if not paths:
                return timings
            ratios, milliseconds = self._time_ratios(original, list(paths.values()))
            runs = PROFILE_SECONDS * 1000 / milliseconds
            num_runs = int(min(max(runs, MIN_PROFILED_RUNS), MAX_PROFILED_RUNS))
            profiles = self._profile(list(paths.values()), num_runs, folder)
        for number, ratio, profile in zip(paths, ratios, profiles, strict=True):
            layer_ms: dict[str, float] = {}
            for node_name, weight_name in layers[number].items():
                layer_ms[weight_name] = layer_ms.get(weight_name, 0.0) + profile[node_name]
            timings[number] = FastTiming(ratio, layer_ms)
        return timings

    def _write_fast_file(self, weights: Weights, path: Path) -> dict[str, str]:
        """Write a fast file; return the weights of its sparse operators by the operators' names."""
        masked = {}
        for name, weight in weights.items():
            masked[name] = np.where(weight != 0, self.graph.get_array(name), 0)
        model = self.graph.with_weights(masked)
        selection = select_layers(
            model, self.weight_names, self.sample, self.instruction_set, self.min_sparsity
        )
        if not selection.weight_names:
            return {}
        model, chains = convert_to_sparse_ops(model, selection.weight_names)
        weight_of_output = {chain.nodes[-1].output[0]: chain.weight_name for chain in chains}
        names = {}
        for number, node in enumerate(model.graph.node):
            if node.domain == DOMAIN:
                node.name = f"{NODE_PREFIX}{number}"
                names[node.name] = weight_of_output[node.output[0]]
        self._write(model, path)
        return names

    def _write(self, model: OnnxModel, path: Path) -> None:
        write_model(ENCODINGS["dense"].encode(model, self.weight_names), path)

    def _time_ratios(self, original: Path, paths: Sequence[Path]) -> tuple[list[float], float]:
        """Return the ratios of files to the original, and the mean milliseconds of a file."""
        sessions = [run_proof.open_session(original)]
        sessions += [run_proof.open_session(path, self.library_path) for path in paths]
        calls = [partial(session.run, None, dict(self.sample)) for session in sessions]
        seconds = TIMING_SECONDS * len(sessions)
        timings = time_interleaved(calls, seconds=seconds, clock=fast.TIMING_CLOCK)
        milliseconds = [timing.ms for timing in timings]
        ratios = [ms / milliseconds[0] for ms in milliseconds[1:]]
        return ratios, float(np.mean(milliseconds[1:]))

    def _profile(
        self, paths: Sequence[Path], num_runs: int, folder: Path
    ) -> list[dict[str, float]]:
        """Return the milliseconds of the sparse operators of each file, by their names."""
        sessions = [self._open_profiled(path, folder) for path in paths]
        for _ in range(num_runs):
            for session in sessions:
                session.run(None, dict(self.sample))
        return [_read_profile(Path(session.end_profiling())) for session in sessions]

    def _open_profiled(self, path: Path, folder: Path) -> Any:
        """Open a session on one thread that writes a profile into a folder."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / path.stem)
        options.register_custom_ops_library(str(self.library_path))
        return onnxruntime.InferenceSession(str(path), options, providers=[run_proof.PROVIDER])


def _read_profile(path: Path) -> dict[str, float]:
    """Return the mean milliseconds of the sparse operators in a profile, without outliers."""
    durations: dict[str, list[float]] = {}
    for event in json.loads(path.read_text(encoding="utf-8")):
        name = event.get("name", "")
        if name.startswith(NODE_PREFIX) and name.endswith(KERNEL_SUFFIX):
            durations.setdefault(name.removesuffix(KERNEL_SUFFIX), []).append(event["dur"])
    means = {}
    for name, values in durations.items():
        quarter = len(values) // 4
        middle = np.sort(values)[quarter : len(values) - quarter]
        means[name] = float(middle.mean()) / 1000
    return means


def fit_weight_times(
    points: Sequence[tuple[Mapping[str, int], FastTiming]],
    elements: Mapping[str, int],
    target: float,
) -> dict[str, int]:
    """Return the picoseconds that a nonzero of each layer takes, at least 1.

    The time of a layer is taken to be a + b · nonzeros, by least squares, and b is returned. A
    layer that stays dense in the file nearest to the target takes 1, because its zeros save
    nothing.

    Args:
        points: Nonzeros of layers and times of the file.
        elements: Number of elements of each layer.
        target: The latency ratio that is aimed at.
    """
    _, nearest = min(points, key=lambda point: abs(point[1].ratio - target))
    picoseconds = dict.fromkeys(elements, 1)
    for name in nearest.layer_ms.keys() & elements.keys():
        pairs = [
            (n[name], timing.layer_ms[name]) for n, timing in points if name in timing.layer_ms
        ]
        nonzeros, times = np.array(pairs, np.float64).T
        spread = nonzeros - nonzeros.mean()
        # Noise and whole microseconds may hide how small the time of a small layer gets.
        slope = MIN_SHARE * float(times.max()) / elements[name]
        if spread.any():
            slope = max(slope, float(spread @ times / (spread @ spread)))
        picoseconds[name] = max(round(slope * PICOSECONDS), 1)
    return picoseconds
