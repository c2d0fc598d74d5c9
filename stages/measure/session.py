"""Run a file in onnxruntime, with or without sparse operators, and measure how long it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.checks import make_sample_error
from ltp_pipeline.data.dataset import Split
from ltp_pipeline.errors import ExportFailed, InputError, UnsupportedModel, summarize_error
from ltp_pipeline.exporters.files.run_proof import PROVIDER
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.sparse_ops.library import sparse_ops_library
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.results.schema import FileLatencyResult, LatencyResult
from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.system import child_process, memory, threads, tolerance
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.timing import Timing, time_interleaved

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array

LATENCY_BATCHES = (1, 16)  # samples in the batches that are timed
FLOAT_BYTES = 4
PROBE_SAMPLES = 2  # samples that show whether an output has a row for each


class Session:
    """A file loaded in onnxruntime, which takes batches of any size.

    Args:
        path: The file.
        provider: Execution provider of onnxruntime.
        positions: Positions of the outputs that are evaluated.
        is_optimized: If False, onnxruntime does not optimize the graph.
        is_single_threaded: If True, use one thread instead of the threads of the run.
        library: Library of sparse operators to register, if any.
        is_foreign: If True, the file comes from elsewhere, and a child process runs it first.

    Raises:
        InputError: The provider does not exist, or onnxruntime cannot load the file.
        UnsupportedModel: onnxruntime crashes on the file, or it does not fit into memory.
    """

    def __init__(
        self,
        path: Path,
        provider: str = PROVIDER,
        positions: Sequence[int] = (0,),
        is_optimized: bool = True,
        is_single_threaded: bool = False,
        library: Path | None = None,
        is_foreign: bool = False,
    ) -> None:
        import onnxruntime

        available = onnxruntime.get_available_providers()
        if provider not in available:
            raise InputError(
                f"onnxruntime has no execution provider {provider!r} here",
                f"available: {', '.join(available)}",
            )
        self.path = path
        self.provider = provider
        self.library = library
        self.positions = positions
        self.needs_trial = is_foreign
        self.threads = 1
        if not is_single_threaded:
            self.threads = threads.current_threads()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised, so that logging would repeat them
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not is_optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if is_foreign:
            run_in_child(path, {})
        start = time.perf_counter()
        try:
            if library is not None:
                options.register_custom_ops_library(str(library))
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = summarize_error(error)
            raise InputError(
                f"onnxruntime cannot load {path}: {line}", "check that the file is a model"
            ) from None
        self.load_ms = 1000 * (time.perf_counter() - start)
        overridable = collect_names(self.session.get_overridable_initializers())
        inputs = [info for info in self.session.get_inputs() if info.name not in overridable]
        self.half_inputs = {info.name for info in inputs if info.type == "tensor(float16)"}
        self.fixed_batch: int | None = None
        for info in inputs:
            _check_input_size(path, info.name, info.shape)
            if self.fixed_batch is None and info.shape and isinstance(info.shape[0], int):
                self.fixed_batch = info.shape[0]

    def infer_output_shapes(self, split: Split) -> list[tuple[int, ...] | None]:
        """Return the shape of each output for PROBE_SAMPLES samples.

        Returns:
            Shapes; None for an output that is not a float tensor with a row for each sample.
        """
        num_samples = self.fixed_batch or PROBE_SAMPLES
        rows = np.arange(num_samples) % len(split)
        shapes: list[tuple[int, ...] | None] = []
        for output in self._run_batch(split.read(rows).inputs):
            is_float = isinstance(output, np.ndarray) and output.dtype.kind == "f"
            has_rows = is_float and output.shape[:1] == (num_samples,)
            if has_rows:
                shapes.append((PROBE_SAMPLES, *output.shape[1:]))
            else:
                shapes.append(None)
        return shapes

    def compute_outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the evaluated outputs for a batch of any size, one row per sample."""
        num_samples = len(next(iter(inputs.values())))
        step = self.fixed_batch or num_samples
        parts: list[list[Array]] = [[] for _ in self.positions]
        for start in range(0, num_samples, step):
            count = min(step, num_samples - start)
            batch = {}
            for name, array in inputs.items():
                rows = array[start : start + count]
                if count < step:  # the last row fills up the batch
                    rows = np.concatenate([rows, np.repeat(rows[-1:], step - count, axis=0)])
                batch[name] = rows
            outputs = self._run_batch(batch)
            for part, position in zip(parts, self.positions, strict=True):
                output = outputs[position]
                if len(output) != step:
                    raise InputError(
                        f"output {position} of {self.path} has {len(output)} rows for {step} "
                        "samples",
                        "pass a model whose outputs have one row per sample",
                    )
                part.append(output[:count])
        return [np.concatenate(part).astype(np.float32, copy=False) for part in parts]

    def _run_batch(self, inputs: Mapping[str, Array]) -> list[Array]:
        feeds = dict(inputs)
        for name in self.half_inputs & feeds.keys():
            feeds[name] = feeds[name].astype(np.float16)
        if self.needs_trial:
            run_in_child(self.path, feeds)
            self.needs_trial = False
        try:
            outputs: list[Array] = self.session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            message = f"onnxruntime does not run {self.path}"
            raise make_sample_error(inputs, message, error) from None
        return outputs


class SparseVsDenseSession:
    """A session with sparse operators, compared with a session of the same file without them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.dense = Session(session.path, positions=session.positions)
        self.differences = [tolerance.MaxDifference(0.0, 0.0)] * len(session.positions)

    def compute_outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of the sparse operators, and record how far the dense ones differ."""
        sparse_outputs = self.session.compute_outputs(inputs)
        dense_outputs = self.dense.compute_outputs(inputs)
        for number, pair in enumerate(zip(sparse_outputs, dense_outputs, strict=True)):
            difference, scale = self.differences[number]
            batch = tolerance.max_difference(*pair)
            self.differences[number] = tolerance.MaxDifference(
                max(difference, batch.difference), max(scale, batch.scale)
            )
        return sparse_outputs

    def check_differences(self) -> float:
        """Return the largest difference as a fraction of the largest output.

        Raises:
            ExportFailed: The difference is larger than fast files promise.
        """
        for difference in self.differences:
            agreement = tolerance.check_tolerance(difference, fast.TOLERANCE, lambda: 0.0)
            if agreement is tolerance.Agreement.DIFFERENT:
                raise ExportFailed(
                    f"{self.session.path.name}: outputs of the sparse operators differ by "
                    f"{difference.relative:.2g} of the largest",
                    "leave fast out of --export, and report this as a bug",
                )
        return max(difference.relative for difference in self.differences)


def run_in_child(path: Path, inputs: Mapping[str, Array]) -> None:
    """Run a file in a child process, because onnxruntime may crash or never return.

    Other errors are left to the session that runs the file next.

    Raises:
        UnsupportedModel: The child process crashed, or ran out of time or memory.
    """
    with temporary_folder("trial") as folder:
        try:
            onnxruntime_child.run_model(path.absolute(), inputs, "ALL", folder)
        except child_process.ChildCrashed as error:
            raise UnsupportedModel(
                f"onnxruntime {error} on {path}", "export the model again"
            ) from None
        except (onnxruntime_child.LoadFailed, onnxruntime_child.RunFailed) as error:
            if memory.is_shortage(error):
                raise UnsupportedModel(
                    f"{path} does not fit into memory: {error}",
                    "check pads, scales and sizes of this node, or use a machine with more memory",
                ) from None


def find_library(model: OnnxModel) -> Path | None:
    """Return the library of sparse operators if the model uses them and they can be loaded."""
    if not fast.uses_sparse_ops(model) or fast.explain_missing_library() is not None:
        return None
    return sparse_ops_library()


def time_batch(
    sessions: Sequence[Session], inputs: Mapping[str, Array], seconds: float = 0.0
) -> list[Timing]:
    """Time one batch in each session, interleaved so that all sessions see the same machine.

    Args:
        sessions: The sessions. If all compute on one thread, the time of that thread is measured,
            which leaves out other work of the machine.
        inputs: The batch.
        seconds: Smallest total time.
    """
    is_single = all(s.threads == 1 and s.provider == PROVIDER for s in sessions)
    clock = fast.TIMING_CLOCK if is_single else time.perf_counter
    calls = [partial(session.compute_outputs, inputs) for session in sessions]
    return time_interleaved(calls, seconds=seconds, clock=clock)


def measure_latency(session: Session, split: Split) -> list[LatencyResult]:
    """Measure the latency of a session for batches of all LATENCY_BATCHES sizes."""
    results = []
    for size in LATENCY_BATCHES:
        batch = split.read_first(size)
        (timing,) = time_batch([session], batch.inputs)
        results.append(LatencyResult(batch=len(batch), threads=session.threads, ms=timing.ms))
    return results


def compare_latency(session: Session, original: Session, split: Split) -> list[FileLatencyResult]:
    """Measure the latency of a session and of the original's for all LATENCY_BATCHES sizes."""
    results = []
    for size in LATENCY_BATCHES:
        batch = split.read_first(size)
        # A budget of latency is measured by one sample in a fast file.
        seconds = fast.TIMING_SECONDS if session.library is not None and size == 1 else 0.0
        timing, original_timing = time_batch([session, original], batch.inputs, seconds)
        results.append(
            FileLatencyResult(
                batch=len(batch),
                threads=session.threads,
                ms=timing.ms,
                original_ms=original_timing.ms,
                ratio_quartiles=timing.compute_ratio_quartiles(original_timing),
            )
        )
    return results


def _check_input_size(path: Path, name: str, shape: Sequence[int | str | None]) -> None:
    """Raise UnsupportedModel if an input does not fit into the free memory."""
    size = FLOAT_BYTES
    for axis in shape:
        if isinstance(axis, int):
            size *= axis
    free = memory.available_memory()
    if free is not None and size > free:
        raise UnsupportedModel(
            f"{path} does not fit into memory: its input {name!r} of shape {shape} takes "
            f"{size:,} bytes, and {free:,} are free",
            "export the model for a smaller batch, or use a machine with more memory",
        )
