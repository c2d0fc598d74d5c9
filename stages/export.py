"""Write a network in the requested formats and verify every file."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline import __version__
from ltp_pipeline.errors import ExportFailed, InputError, NotFaster, summarize_error
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import rounding, run_proof
from ltp_pipeline.exporters.files.labels import write_metadata
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import EXPORT_AGAIN, verify_weights
from ltp_pipeline.exporters.graphs import GRAPHS
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, GraphContext
from ltp_pipeline.exporters.int8.search import Calibration
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.storage import write_model, write_models
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema import FileResult
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.file_names import DEPLOY, EXACT, ORIGINAL, ExportFormat, find_format
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.stages.import_model.parity_inputs import to_input
from ltp_pipeline.system.files import copy_file, external_data_path
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.scratch import temporary_folder

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.graph.model_file import TensorInfo
    from ltp_pipeline.system.arrays import Array

PROOF_SAMPLES = 4  # samples on which files must reproduce the outputs of the network


@dataclass(frozen=True)
class ExportedFile:
    """A file that was exported and read back, not measured yet."""

    path: Path
    result: FileResult
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportResult:
    """The files of a network, and the reasons of the files that were skipped, by their names."""

    files: list[ExportedFile]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Source:
    """A graph to write files of."""

    graph: BuiltGraph
    index: NonzeroIndex  # of its layer weights, shared by all encodings
    model_sha256: str  # of the input model


@dataclass(frozen=True)
class _Target:
    """A file to write."""

    format: ExportFormat
    storage: str  # "exact", "fp16" or "int8"
    path: Path


def select_feeds(inputs: Sequence[TensorInfo], data: DatasetSplits) -> dict[str, Array]:
    """Return the inputs on which files are verified: the first samples of the test split."""
    samples = data.test.read_first(PROOF_SAMPLES).inputs
    return {info.name: to_input(info, samples[info.name]) for info in inputs}


def run(
    file: ModelFile,
    weights: Weights,
    weight_names: Collection[str],
    settings: ExportSettings,
    run_directory: RunDirectory,
    feeds: Weights,
    folder: str = "",
    calibration: Calibration | None = None,
) -> ExportResult:
    """Write the requested files of a network into a run directory and verify them.

    Fast files are skipped if they would not be faster. If nothing else is requested, deploy files
    are written instead.

    Args:
        file: The input model.
        weights: Final weights by name.
        weight_names: Names of the layer weights.
        settings: Formats, weight storage and options of graphs.
        run_directory: Where to write.
        feeds: Inputs by name, on which files must reproduce the outputs of the network.
        folder: Folder in the run directory; empty for its root.
        calibration: Samples and evaluation for int8 files; None without data.

    Raises:
        ExportFailed: If a file cannot be verified. It is removed, and so are those after it.
    """
    context = GraphContext(
        file.model.with_weights(weights), weights, weight_names, feeds, calibration, settings
    )
    formats = [find_format(name) for name in settings.formats]
    graphs, skipped = _build_graphs(formats, context)
    if formats and not graphs:  # a network without a file could not be measured
        formats = [ExportFormat(DEPLOY, skipped_format.encoding) for skipped_format in formats]
        graphs, _ = _build_graphs(formats, context)
    files = []
    for name, graph in graphs.items():
        targets = []
        for file_format in formats:
            if file_format.graph != name:
                continue
            storages = [EXACT]
            if file_format.can_be_rounded:
                storages += settings.weight_storage
            for storage in storages:
                path = run_directory.path(folder) / file_format.file_name(storage)
                targets.append(_Target(file_format, storage, path))
        source = _make_source(graph, weight_names, file.sha256)
        for target in _write_verified(source, targets, feeds, settings.external_data):
            result = FileResult(
                path=run_directory.relative_name(target.path),
                graph=name,
                encoding=target.format.encoding,
                **hash_file(target.path),
                bytes=get_file_size(target.path),
                weight_storage=target.storage,
                quantization=graph.quantization,
                sparse_kernels=graph.sparse_kernels,
            )
            files.append(ExportedFile(target.path, result, graph.notes))
    return ExportResult(files, skipped)


def _build_graphs(
    formats: list[ExportFormat], context: GraphContext
) -> tuple[dict[str, BuiltGraph], dict[str, str]]:
    """Build the graphs of formats.

    Returns:
        Graphs by name, and by format name why a format is skipped.
    """
    graphs: dict[str, BuiltGraph] = {}
    skipped: dict[str, str] = {}
    for name, graph in GRAPHS.items():
        format_names = [f.name for f in formats if f.graph == name]
        if not format_names:
            continue
        try:
            graphs[name] = graph.build(context)
        except NotFaster as error:
            skipped |= dict.fromkeys(format_names, error.message)
    return graphs, skipped


def write_file(
    file: ModelFile, weights: Weights, weight_names: Collection[str], encoding: str, path: Path
) -> None:
    """Write a file of the original graph and verify its weights bit for bit.

    The file is removed if it cannot be verified.
    """
    model = file.model.with_weights(weights)
    source = _make_source(BuiltGraph(model, weights), weight_names, file.sha256)
    target = _Target(ExportFormat(ORIGINAL, encoding), EXACT, path)
    _write_verified(source, [target], feeds=None, external=False)


def measure_size(
    file: ModelFile, weights: Weights, weight_names: Collection[str], encoding: str, external: bool
) -> int:
    """Return the bytes of a file of the original graph, which is written and removed again.

    Args:
        file: The input model.
        weights: Weights by name, with the zeros that the file is to have.
        weight_names: Names of the layer weights.
        encoding: Name of the encoding.
        external: True to store data in a second file.
    """
    model = file.model.with_weights(weights)
    all_weights = model.get_arrays(weight_names)
    source = _make_source(BuiltGraph(model, all_weights), weight_names, file.sha256)
    with temporary_folder("size") as folder:
        path = folder / "model.onnx"
        encoded = _encode_target(source, _Target(ExportFormat(ORIGINAL, encoding), EXACT, path))
        assert encoded is not None  # noqa: S101 - exact weights are always encoded
        write_model(encoded[0], path, external)
        return get_file_size(path)


def write_graph(
    graph: BuiltGraph,
    context: GraphContext,
    file_format: ExportFormat,
    path: Path,
    model_sha256: str,
) -> None:
    """Write a file of a graph that is not part of a run, and verify it.

    The file is removed if it cannot be verified. `model_sha256` is the hash of the input model.
    """
    source = _make_source(graph, context.weight_names, model_sha256)
    target = _Target(file_format, EXACT, path)
    _write_verified(source, [target], context.feeds, external=False)


def _make_source(graph: BuiltGraph, weight_names: Collection[str], model_sha256: str) -> _Source:
    """Return a source with an index of the graph's layer weights."""
    names = weight_names if graph.weight_names is None else graph.weight_names
    return _Source(graph, NonzeroIndex(graph.model, names), model_sha256)


def _write_verified(
    source: _Source, targets: list[_Target], feeds: Weights | None, external: bool
) -> list[_Target]:
    """Write the files of a graph and verify them one after the other.

    Args:
        source: The graph.
        targets: Files to write.
        feeds: Inputs by name; None to verify weights only.
        external: True to store data in a second file each.

    Returns:
        The targets that were written. Targets without anything to round are not.

    Raises:
        ExportFailed: If a file cannot be verified. It is removed, and so are those after it.
    """
    expected_outputs: dict[str, list[Array]] = {}  # by storage
    unverified: list[Path] = []
    try:
        futures, stored_weights = _write_files(source, targets, unverified, external)
        for target, weights in stored_weights.items():
            futures[target.path].result()
            verify_weights(target.path, weights, target.format.encoding)
            if feeds is not None:
                _verify_outputs(source, target, weights, feeds, expected_outputs)
            unverified.remove(target.path)
    except BaseException:
        for path in unverified:
            remove_file(path)
        raise
    return list(stored_weights)


def _verify_outputs(
    source: _Source,
    target: _Target,
    weights: Weights,
    feeds: Weights,
    expected_outputs: dict[str, list[Array]],
) -> None:
    """Verify the outputs of a file; `expected_outputs` saves those of each storage for the next."""
    dense_model = source.graph.dense_model
    if target.storage not in expected_outputs:
        model = dense_model or source.graph.model
        if target.storage != EXACT:
            model = model.with_weights(weights)
        outputs = run_proof.run_dense_model(model, source.index, feeds)
        expected_outputs[target.storage] = outputs
    run_proof.verify_outputs(target.path, feeds, expected_outputs[target.storage])
    if dense_model is not None and target.storage == EXACT:
        _verify_without_library(target.path, dense_model, feeds)


def _verify_without_library(path: Path, dense_model: OnnxModel, feeds: Weights) -> None:
    """Verify a file in a child process, which has not loaded the library of sparse operators.

    Raises:
        ExportFailed: If its outputs differ, or it does not run.
    """
    with temporary_folder("proof") as folder:
        dense_path = folder / "dense.onnx"
        write_model(dense_model, dense_path)
        for part in _list_parts(path):
            copy_file(part, folder / part.name)
        try:
            actual_outputs = onnxruntime_child.run_model(folder / path.name, dict(feeds))
            expected_outputs = onnxruntime_child.run_model(dense_path, dict(feeds))
        except onnxruntime_child.FAILURES as error:
            raise ExportFailed(
                f"{path.name} does not run in a child process: {summarize_error(error)}",
                EXPORT_AGAIN,
            ) from None
    for actual, expected in zip(actual_outputs, expected_outputs, strict=True):
        if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
            continue
        if not run_proof.is_bit_identical(actual, expected):
            raise ExportFailed(
                f"{path.name} has other outputs than the dense model"
                " without the library of sparse operators",
                EXPORT_AGAIN,
            )


def _write_files(
    source: _Source, targets: list[_Target], written: list[Path], external: bool
) -> tuple[Mapping[Path, Future[None]], Mapping[_Target, Weights]]:
    """Encode and write the files of a graph in the background; `written` gets each path.

    Returns:
        The result of each write by path, and by target the weights that its file must hold.
        Targets without anything to round are left out.
    """
    stored_weights: dict[_Target, Weights] = {}

    def iter_encoded() -> Iterator[tuple[OnnxModel, Path]]:
        # Dense files are the largest, so they are written first.
        for target in sorted(targets, key=lambda target: target.format.encoding != "dense"):
            encoded = _encode_target(source, target)
            if encoded is not None:
                model, stored_weights[target] = encoded
                yield model, target.path

    for target in targets:
        # The data of an older file would be taken for those of the new file.
        external_data_path(target.path).unlink(missing_ok=True)
    futures = write_models(iter_encoded(), written, external)
    return futures, {t: stored_weights[t] for t in targets if t in stored_weights}


def _encode_target(source: _Source, target: _Target) -> tuple[OnnxModel, Weights] | None:
    """Return an encoded model with labels and the weights that its file must hold.

    Returns None if values are to be rounded, but no tensor is packed.
    """
    encoding = ENCODINGS[target.format.encoding]
    model = source.graph.model
    weights = source.graph.weights
    if target.storage == EXACT:
        encoded = encoding.encode(model, source.index)
    else:
        encoded = encoding.encode(model, source.index, storage=target.storage)
        packed_names = encoding.find_encoded_names(encoded)
        if not packed_names:
            return None
        weights = rounding.round_packed_weights(weights, packed_names, model.graph, target.storage)
    layers = count_layers(weights, source.index)
    labels = {
        "format": encoding.name,
        "version": __version__,
        "sparsity": f"{layers.sparsity:.6f}",
        "nonzeros": layers.nonzeros,
        "source_sha256": source.model_sha256,
        "values": target.storage,
    }
    if target.format.graph != ORIGINAL:
        labels["graph"] = target.format.graph
    return write_metadata(encoded, **labels), weights


def count_layers(weights: Weights, weight_names: Collection[str]) -> Sparsity:
    """Return the sparsity over all layer weights."""
    return Sparsity.combine(
        Sparsity(weights[name].size, int((weights[name] != 0).sum())) for name in weight_names
    )


def hash_file(path: Path) -> dict[str, Any]:
    """Return the hashes of a written file and of its data: `sha256` and `data_sha256`, or None."""
    hashes = [sha256_file(part) for part in _list_parts(path)]
    return {"sha256": hashes[0], "data_sha256": hashes[1] if hashes[1:] else None}


def get_file_size(path: Path) -> int:
    """Return the bytes of a file, external data included."""
    return sum(part.stat().st_size for part in _list_parts(path))


@contextmanager
def move_when_done(target: Path) -> Iterator[Path]:
    """Yield a temporary path for a file, and move the file to its target when the block is done.

    If the block fails, nothing is left behind, and errors name the target.

    Raises:
        InputError: If the target cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True
        )
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror}", "pass a name in a writable folder"
        ) from None
    with folder as folder_name:
        path = Path(folder_name, target.name)
        try:
            yield path
        except (InputError, ExportFailed) as error:
            raise type(error)(error.message.replace(str(path), str(target)), error.hint) from None
        # At no time does a model lie next to the data of another one.
        if external_data_path(path).is_file():
            target.unlink(missing_ok=True)
            external_data_path(path).replace(external_data_path(target))
            path.replace(target)
        else:
            path.replace(target)
            external_data_path(target).unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file and its external data."""
    for part in _list_parts(path):
        part.unlink()


def _list_parts(path: Path) -> list[Path]:
    """Return a file and the file of its external data, those of them that exist."""
    return [part for part in (path, external_data_path(path)) if part.is_file()]
