"""Put the final weights into the original graph, write it in the formats asked for, and prove the files."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
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
from ltp_pipeline.exporters.graphs.graph import BuiltGraph
from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.storage import write_model as write_dense
from ltp_pipeline.graph.storage import write_models
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import ExportedFile, ExportResult
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.file_names import DEPLOY, EXACT, ORIGINAL, ExportFormat, find_format
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.system.files import copy_file, external_data_path
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.scratch import temporary_folder

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array


@dataclass(frozen=True)
class _Target:
    """A file to write."""

    format: ExportFormat
    values: str
    path: Path


@dataclass(frozen=True)
class _Source:
    """A graph on its way into files."""

    made: BuiltGraph
    kernels: NonzeroIndex  # looked through once for all encodings
    sha256: str  # of the model that was given


def run(
    file: ModelFile,
    weights: Weights,
    weight_names: Collection[str],
    settings: ExportSettings,
    workspace: RunDirectory,
    feeds: Weights,
    folder: str = "",
    calibration: Calibration | None = None,
) -> ExportResult:
    """Write the files asked for into a folder of the run directory; each is proven on `feeds`, or removed.

    Quantised graphs need a `calibration`. Fast files are left out where they would not be faster; where no other is
    asked for, that of the deploy graph is written in their place.
    """
    asked = [find_format(name) for name in settings.formats]
    model = file.model.with_weights(weights)
    made, left_out = dict[str, BuiltGraph](), dict[str, str]()
    for name in (name for name in GRAPHS if any(wanted.graph == name for wanted in asked)):
        try:
            made[name] = GRAPHS[name].build(
                model, weights, weight_names, feeds, calibration, settings
            )
        except NotFaster as error:
            left_out |= {wanted.name: error.message for wanted in asked if wanted.graph == name}
    if asked and not made:  # a network without a file could not be measured
        asked = [ExportFormat(DEPLOY, wanted.encoding) for wanted in asked]
        made[DEPLOY] = GRAPHS[DEPLOY].build(
            model, weights, weight_names, feeds, calibration, settings
        )
    files = []
    for name, graph in made.items():
        source = _source(graph, weight_names, file.sha256)
        targets = [
            _Target(wanted, values, workspace.path(folder) / wanted.file_name(values))
            for wanted in asked
            if wanted.graph == name
            for values in (EXACT, *(settings.weight_storage if wanted.can_be_rounded else ()))
        ]
        for target in _write_verified(source, targets, feeds, settings.external_data):
            files.append(
                ExportedFile(
                    target.path,
                    workspace.relative_name(target.path),
                    graph=name,
                    encoding=target.format.encoding,
                    **hash_file(target.path),
                    bytes=get_file_size(target.path),
                    weight_storage=target.values,
                    notes=graph.notes,
                    quantization=graph.quantization,
                    sparse_kernels=graph.sparse_kernels,
                )
            )
    return ExportResult(files, left_out)


def write_file(
    file: ModelFile, weights: Weights, weight_names: Collection[str], encoding: str, path: Path
) -> None:
    """Write one file of the original graph; it is read back and compared bit for bit, and removed where it differs."""
    model = file.model.with_weights(weights)
    source = _source(BuiltGraph(model, weights), weight_names, file.sha256)
    target = _Target(ExportFormat(ORIGINAL, encoding), EXACT, path)
    with _remove_unverified() as unproven:
        writing, held = _write_files(source, [target], unproven)
        writing[path].result()
        verify_weights(path, held[target], encoding)


def write_graph(
    made: BuiltGraph,
    weight_names: Collection[str],
    target: ExportFormat,
    path: Path,
    feeds: Weights,
    sha256: str,
) -> Path:
    """Write a graph that is no part of a run, proven as others are."""
    _write_verified(
        _source(made, weight_names, sha256), [_Target(target, EXACT, path)], feeds, external=False
    )
    return path


def _source(made: BuiltGraph, weight_names: Collection[str], sha256: str) -> _Source:
    held = weight_names if made.weight_names is None else made.weight_names
    return _Source(made, NonzeroIndex(made.model, held), sha256)


def count_layers(weights: Weights, weight_names: Collection[str]) -> Sparsity:
    """Sparsity over all kernels."""
    return Sparsity.combine(
        Sparsity(weights[name].size, int((weights[name] != 0).sum())) for name in weight_names
    )


def hash_file(path: Path) -> dict[str, Any]:
    """Hash of a file that was written, and of its data where they are beside it."""
    hashes = [sha256_file(part) for part in _list_parts(path)]
    return {"sha256": hashes[0], "data_sha256": hashes[1] if hashes[1:] else None}


def _write_verified(
    source: _Source, targets: list[_Target], feeds: Weights, external: bool
) -> list[_Target]:
    """Write the files of one graph and prove them, one after the other; those that were left out are not returned."""
    expected: dict[str, list[Array]] = {}  # outputs by the kind of values
    with _remove_unverified() as unproven:
        writing, held = _write_files(source, targets, unproven, external)
        for target, weights in held.items():
            writing[target.path].result()
            verify_weights(target.path, weights, target.format.encoding)
            if target.values not in expected:
                model = source.made.dense_model or source.made.model
                if target.values != EXACT:
                    model = model.with_weights(weights)
                expected[target.values] = run_proof.run_dense_model(model, source.kernels, feeds)
            run_proof.verify_outputs(target.path, feeds, expected[target.values])
            if source.made.dense_model is not None and target.values == EXACT:
                _verify_without_library(target.path, source.made.dense_model, feeds)
            unproven.remove(target.path)
        return list(held)


def _verify_without_library(path: Path, dense: OnnxModel, feeds: Weights) -> None:
    """Prove that a file gives the bits of the dense model in a process that has never seen the sparse kernels."""
    with temporary_folder("proof") as folder:
        write_dense(dense, folder / "dense.onnx")
        for part in _list_parts(path):
            copy_file(part, folder / part.name)
        try:
            found = [
                onnxruntime_child.run_model(folder / name, dict(feeds))
                for name in (path.name, "dense.onnx")
            ]
        except onnxruntime_child.FAILURES as error:
            what = f"{path.name} does not run in a process of its own: {summarize_error(error)}"
            raise ExportFailed(what, EXPORT_AGAIN) from None
    pairs = [
        (a, b)
        for a, b in zip(*found, strict=True)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    ]
    if not all(run_proof.is_bit_identical(a, b) for a, b in pairs):
        raise ExportFailed(
            f"{path.name} gives other bits than the dense model without the sparse kernels",
            EXPORT_AGAIN,
        )


def _write_files(
    source: _Source, targets: list[_Target], written: list[Path], external: bool = False
) -> tuple[Mapping[Path, Future[None]], Mapping[_Target, Weights]]:
    """Write the files: how that went for each, and what each must hold.

    Where nothing could be packed, nothing can be rounded, and such a file is left out.
    """
    held: dict[_Target, Weights] = {}

    def encoded() -> Iterator[tuple[OnnxModel, Path]]:
        for target in sorted(
            targets, key=lambda target: target.format.encoding != "dense"
        ):  # the largest file first
            model, weights = _encode_target(source, target)
            if model is not None:
                held[target] = weights
                yield model, target.path

    for target in targets:
        external_data_path(target.path).unlink(
            missing_ok=True
        )  # an older file's, which would be taken for the new one's
    writing = write_models(encoded(), written, external)
    return writing, {target: held[target] for target in targets if target in held}


def _encode_target(source: _Source, target: _Target) -> tuple[OnnxModel | None, Weights]:
    """An encoded model with its labels, and what it must hold; None where there is nothing to round."""
    encoding, model, weights = (
        ENCODINGS[target.format.encoding],
        source.made.model,
        source.made.weights,
    )
    if target.values == EXACT:
        encoded = encoding.encode(model, source.kernels)
    else:
        encoded = encoding.encode(model, source.kernels, storage=target.values)
        packed = encoding.find_encoded_names(encoded)
        if not packed:
            return None, {}
        weights = rounding.round_packed_weights(weights, packed, model.graph, target.values)
    counted = count_layers(weights, source.kernels)
    encoded = write_metadata(
        encoded,
        format=encoding.name,
        version=__version__,
        sparsity=f"{counted.sparsity:.6f}",
        nonzeros=counted.nonzeros,
        source_sha256=source.sha256,
        values=target.values,
        **({} if target.format.graph == ORIGINAL else {"graph": target.format.graph}),
    )
    return encoded, weights


@contextmanager
def _remove_unverified() -> Iterator[list[Path]]:
    """A list for files that were written and are to be proven; those in it when anything goes wrong are removed."""
    unproven: list[Path] = []
    try:
        yield unproven
    except BaseException:
        for path in unproven:
            remove_file(path)
        raise


def get_file_size(path: Path) -> int:
    """Bytes of a file and of the data beside it."""
    return sum(part.stat().st_size for part in _list_parts(path))


@contextmanager
def move_when_done(target: Path) -> Iterator[Path]:
    """Where to write a file that is proven and measured before it has its name; what fails leaves nothing behind."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True
        )
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror}", "give a name in a writable folder"
        ) from None
    with folder as name:
        path = Path(name, target.name)
        try:
            yield path
        except (InputError, ExportFailed) as error:  # what is told is the name that was given
            raise type(error)(error.message.replace(str(path), str(target)), error.hint) from None
        if external_data_path(
            path
        ).is_file():  # an older model never has the new one's data, nor the other way round
            target.unlink(missing_ok=True)
            external_data_path(path).replace(external_data_path(target))
            path.replace(target)
        else:
            path.replace(target)
            external_data_path(target).unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file and the data beside it."""
    for part in _list_parts(path):
        part.unlink()


def _list_parts(path: Path) -> list[Path]:
    """A file and the external data beside it, as far as they are there."""
    return [p for p in (path, external_data_path(path)) if p.is_file()]
