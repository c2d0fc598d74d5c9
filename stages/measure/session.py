"""A file in onnxruntime: its outputs, with and without the sparse kernels, and how long it takes."""

from __future__ import annotations

import math
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
from ltp_pipeline.results.records import LatencyResult
from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.system import child_process, memory, threads, tolerance
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.timing import Timing, time_interleaved

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array

LATENCY_BATCHES = (1, 16)
FLOAT_BYTES = 4
TWO = 2  # samples by which an output is told to have a row for each


def try_elsewhere(path: Path, inputs: Mapping[str, Array]) -> None:
    """Run a file in a process of its own, which onnxruntime may crash or keep for ever; other errors are told later."""
    with temporary_folder("trial") as folder:
        try:
            onnxruntime_child.run_model(path.absolute(), inputs, "ALL", folder)
        except child_process.ChildCrashed as error:
            raise UnsupportedModel(f"onnxruntime {error} on {path}", "export it again") from None
        except (onnxruntime_child.LoadFailed, onnxruntime_child.RunFailed) as error:
            if memory.is_shortage(error):
                raise UnsupportedModel(
                    f"{path} does not fit into memory: {error}",
                    "check pads, scales and sizes of this node, or use a machine with more memory",
                ) from None


class Session:
    """A file loaded in onnxruntime; hides whether its batch size is fixed."""

    def __init__(
        self,
        path: Path,
        provider: str = PROVIDER,
        positions: Sequence[int] = (0,),
        optimised: bool = True,
        single: bool = False,  # on one thread, whatever the run uses
        library: Path | None = None,  # of sparse kernels
        is_foreign: bool = False,  # a file from elsewhere: a child process tries it first
    ) -> None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            known = ", ".join(onnxruntime.get_available_providers())
            raise InputError(
                f"onnxruntime has no execution provider {provider!r} here", f"available: {known}"
            )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is raised, and said once
        options.intra_op_num_threads = self.threads = 1 if single else threads.current_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if is_foreign:
            try_elsewhere(path, {})
        begun = time.perf_counter()
        try:
            if library is not None:
                options.register_custom_ops_library(str(library))
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            line = summarize_error(error)
            raise InputError(
                f"onnxruntime cannot load {path}: {line}", "check that the file is a model"
            ) from None
        self.path = path
        self.library = library
        self.untried = is_foreign
        self.positions = positions  # of the outputs that are judged
        self.load_ms = 1000 * (time.perf_counter() - begun)
        overridable = {i.name for i in self.session.get_overridable_initializers()}
        inputs = [i for i in self.session.get_inputs() if i.name not in overridable]
        self.half = {i.name for i in inputs if i.type == "tensor(float16)"}
        sizes = [i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int)]
        self.fixed_batch = sizes[0] if sizes else None
        for info in inputs:
            size = FLOAT_BYTES * math.prod(d for d in info.shape if isinstance(d, int))
            free = memory.available_memory()
            if free is not None and size > free:
                raise UnsupportedModel(
                    f"{path} does not fit into memory: its input {info.name!r} of shape "
                    f"{info.shape} takes {size:,} bytes, and {free:,} are free",
                    "export the model for a smaller batch, or use a machine with more memory",
                )

    def shapes(self, split: Split) -> list[tuple[int, ...] | None]:
        """Shape of each output for TWO samples; None where it is no floating-point tensor with rows for samples."""
        given = self.fixed_batch or TWO
        found = self._run(split.read(np.arange(given) % len(split)).inputs)
        rows = [
            isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.shape[:1] == (given,)
            for y in found
        ]
        return [(TWO, *y.shape[1:]) if r else None for y, r in zip(found, rows, strict=True)]

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The judged outputs for a batch of any size, one row per sample."""
        samples = len(next(iter(inputs.values())))
        step = self.fixed_batch or samples
        rows: list[list[Array]] = [[] for _ in self.positions]
        for start in range(0, samples, step):
            missing = max(start + step - samples, 0)
            found = self._run(
                {name: _filled(x[start : start + step], missing) for name, x in inputs.items()}
            )
            for kept, position in zip(rows, self.positions, strict=True):
                if len(found[position]) != step:
                    what = f"output {position} of {self.path} has {len(found[position])} rows for {step} samples"
                    raise InputError(what, "give a model whose outputs have one row per sample")
                kept.append(found[position][: step - missing])
        return [np.concatenate(kept).astype(np.float32, copy=False) for kept in rows]

    def _run(self, inputs: Mapping[str, Array]) -> list[Array]:
        feeds = {
            name: x.astype(np.float16) if name in self.half else x for name, x in inputs.items()
        }
        if self.untried:
            try_elsewhere(self.path, feeds)
            self.untried = False
        try:
            found: list[Array] = self.session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            raise make_sample_error(
                inputs, f"onnxruntime does not run {self.path}", error
            ) from None
        return found


def _filled(part: Array, missing: int) -> Array:
    """A part of a batch with its last row repeated, as often as rows are missing."""
    return np.concatenate([part, np.repeat(part[-1:], missing, axis=0)]) if missing else part


class SparseVsDenseSession:
    """A session with sparse kernels, whose outputs are compared with those of the same file without them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.dense = Session(session.path, positions=session.positions)
        self.gaps = [tolerance.MaxDifference(0.0, 0.0)] * len(session.positions)

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Those of the sparse kernels."""
        ours, theirs = self.session.outputs(inputs), self.dense.outputs(inputs)
        found = [tolerance.max_difference(a, b) for a, b in zip(ours, theirs, strict=True)]
        pairs = zip(self.gaps, found, strict=True)
        self.gaps = [
            tolerance.MaxDifference(max(a.difference, b.difference), max(a.scale, b.scale))
            for a, b in pairs
        ]
        return ours

    def largest(self) -> float:
        """How far outputs are apart as a share of the largest; more than is promised is an error."""
        for gap in self.gaps:
            if (
                tolerance.check_tolerance(gap, fast.TOLERANCE, lambda: 0.0)
                is tolerance.Agreement.DIFFERENT
            ):
                share = f"{gap.relative:.2g} of the largest"
                what = f"{self.session.path.name}: outputs of the sparse kernels differ by {share}"
                raise ExportFailed(
                    what, "leave fast out of --export, and please report this as a bug"
                )
        return max(gap.relative for gap in self.gaps)


def library_for(model: OnnxModel) -> Path | None:
    """The sparse kernels that a model uses, where they can be loaded."""
    return (
        sparse_ops_library()
        if fast.uses_sparse_ops(model) and fast.explain_missing_library() is None
        else None
    )


def latency(sessions: Sequence[Session], x: Mapping[str, Array]) -> list[Timing]:
    """Time one batch, in turns so that all sessions see the same machine."""
    return time_interleaved([partial(session.outputs, x) for session in sessions])


def latencies(sessions: Sequence[Session], split: Split) -> list[LatencyResult]:
    """The first session's for batches of both sizes, in turns with the second's, where there is one."""
    found = []
    for size in LATENCY_BATCHES:
        batch = split.read_first(size)
        mine, *theirs = latency(sessions, batch.inputs)
        found.append(
            LatencyResult(
                len(batch), sessions[0].threads, mine.ms, theirs[0].ms if theirs else None
            )
        )
    return found
