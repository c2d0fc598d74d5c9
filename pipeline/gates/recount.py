"""Count the files of a report again: sizes, zeros, and what the files say of themselves; needs no data and no torch."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ltp_pipeline.exporters.files.count import FileSparsity, count_sparsity
from ltp_pipeline.exporters.files.labels import read_metadata
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.layer_weights import find_ancestors, find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.readers import find_readers
from ltp_pipeline.graph.storage import read_model_with_data
from ltp_pipeline.graph.tensors import FLOAT_TYPES, collect_stored_tensors
from ltp_pipeline.results.checks import refuse
from ltp_pipeline.results.derivations import ConsistencyCheck
from ltp_pipeline.results.schema import BaselinePoint, FileResult, HashedFile, Report
from ltp_pipeline.results.schema_parts import LayerResult
from ltp_pipeline.settings.file_names import ORIGINAL
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.system.files import external_data_path
from ltp_pipeline.system.text import quote_name

UNLABELLED = "not labelled"


def require_counts(report: Report, folder: Path) -> None:
    """Refuse a report that says something else of its files than they do; their hashes were compared before.

    Files of the baseline count where they are there.
    """
    for claim in _claims(report, folder):
        refuse(claim, "the report")


def _claims(report: Report, folder: Path) -> Iterator[ConsistencyCheck]:
    names = [layer.name for layer in report.layers]
    counted = []
    for number, file in enumerate(report.pruned.files):
        path = folder / file.path
        model, data = read_model_with_data(path)
        yield _data(file, path, data)
        yield from _said_of(file, f"pruned.files.{number}", path, model, report.model.sha256)
        counted.append(count_sparsity(model, names))
        yield ConsistencyCheck(
            f"pruned.files.{number}.nonzeros",
            file.nonzeros,
            counted[-1].layers.nonzeros,
            file.path,
        )
        yield from _elements(report, file, counted[-1])
        yield from _kernels(file, path, names)
    if counted:
        most = max(counted, key=lambda counts: counts.layers.nonzeros)
        yield ConsistencyCheck(
            "pruned.model_nonzeros", report.pruned.model_nonzeros, most.model.nonzeros, "the files"
        )
        yield from _nonzeros(
            "nonzeros", report.layers, [layer.nonzeros for layer in report.layers], most
        )
        yield from _baseline(report, folder, names)


def _data(file: HashedFile, path: Path, found: Sequence[Path]) -> ConsistencyCheck:
    """The weights outside the file are those that the report has the hash of."""
    hashed = [external_data_path(path)] if file.data_sha256 else []
    stated, read = (
        [os.path.relpath(part.resolve(), path.parent.resolve()) for part in p]
        for p in (hashed, found)
    )
    return ConsistencyCheck(f"the list of data files of {file.path}", stated, read, "the file")


def _said_of(
    file: FileResult, key: str, path: Path, model: OnnxModel, source: str | None
) -> Iterator[ConsistencyCheck]:
    """Its size, and the labels in it, which every exported file has."""
    parts = [path, *([external_data_path(path)] if file.data_sha256 else [])]
    yield ConsistencyCheck(
        f"{key}.bytes",
        file.bytes,
        sum(part.stat().st_size for part in parts),
        f"the size of {file.path}",
    )
    found = read_metadata(model)
    told = {
        "encoding": found.get("format", UNLABELLED),
        "graph": found.get("graph", ORIGINAL),
        "weight_storage": found.get("values", UNLABELLED),
    }
    for name, value in told.items():
        yield ConsistencyCheck(
            f"{key}.{name}", getattr(file, name), value, f"the labels in {file.path}"
        )
    yield ConsistencyCheck(
        "model.sha256", source, found.get("source_sha256", UNLABELLED), f"the labels in {file.path}"
    )


def _elements(report: Report, file: FileResult, counts: FileSparsity) -> Iterator[ConsistencyCheck]:
    """Those of kernels are the same in every graph; all float weights of the original only its own graph has."""
    for number, layer in enumerate(report.layers):
        yield ConsistencyCheck(
            f"layers.{number}.elements",
            layer.elements,
            counts.by_name[layer.name].elements,
            file.path,
        )
    if file.graph == ORIGINAL:
        yield ConsistencyCheck(
            "model.float_elements", report.model.float_elements, counts.model.elements, file.path
        )


def _nonzeros(
    key: str, layers: Sequence[LayerResult], stated: Sequence[int | None], counts: FileSparsity
) -> Iterator[ConsistencyCheck]:
    for number, (layer, said) in enumerate(zip(layers, stated, strict=True)):
        yield ConsistencyCheck(
            f"layers.{number}.{key}", said, counts.by_name[layer.name].nonzeros, "the files"
        )


def _kernels(file: FileResult, path: Path, listed: Sequence[str]) -> Iterator[ConsistencyCheck]:
    """The layers are the kernels that outputs depend on: none is left out, and by each of them something is multiplied.

    In other graphs than the original's, folded constants may be float kernels that it has not; they are not missed.
    """
    _, walked, _ = import_model.prepare_graph(read_model_file(path))
    needed = find_ancestors(walked.graph, [output.name for output in walked.graph.output])
    alive = {
        name: uses
        for name, every in find_readers(walked.graph).items()
        if (uses := [use for use in every if needed.intersection(use.node.output)])
    }
    weights = {name for name, uses in alive.items() if any(use.is_weight for use in uses)}
    unread = [name for name in listed if weights.isdisjoint((name, name + QUANTIZED_SUFFIX))]
    kernels, held = (
        {k.name for k in find_layer_weights(walked, readers=alive)},
        collect_stored_tensors(walked.graph),
    )
    if file.graph == ORIGINAL:
        left_out = {name for name in kernels if held[name].data_type in FLOAT_TYPES}.difference(
            listed
        )
    else:
        left_out = {
            name.removesuffix(QUANTIZED_SUFFIX)
            for name in kernels
            if name.endswith(QUANTIZED_SUFFIX)
        }.difference(listed)
    told = "whole"
    if unread:
        told = f"with {quote_name(unread[0])}, by which nothing is multiplied"
    elif left_out:
        told = f"without {quote_name(min(left_out))}"
    yield ConsistencyCheck("the list of layers", told, "whole", file.path)


def _baseline(report: Report, folder: Path, names: list[str]) -> Iterator[ConsistencyCheck]:
    if report.baseline is None:
        return
    counted: dict[str, FileSparsity] = {}
    files: list[FileResult | BaselinePoint] = [
        *report.baseline.files,
        *report.baseline_points.values(),
    ]
    for file in files:
        path = folder / file.path
        if file.path not in counted and path.is_file():
            model, data = read_model_with_data(path)
            yield _data(file, path, data)
            counted[file.path] = count_sparsity(model, names)
        if file.path in counted:
            nonzeros = counted[file.path].layers.nonzeros
            yield ConsistencyCheck(f"nonzeros of {file.path}", file.nonzeros, nonzeros, "the file")
    of_files = [counted[file.path] for file in report.baseline.files if file.path in counted]
    if of_files and len(of_files) == len(report.baseline.files):
        most = max(of_files, key=lambda counts: counts.layers.nonzeros)
        stated = [layer.baseline_nonzeros for layer in report.layers]
        yield ConsistencyCheck(
            "baseline.model_nonzeros",
            report.baseline.model_nonzeros,
            most.model.nonzeros,
            "the files",
        )
        yield from _nonzeros("baseline_nonzeros", report.layers, stated, most)
